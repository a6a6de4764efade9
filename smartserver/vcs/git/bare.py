"""A bare git repository for one command, or kept between its runs: other programs work in it with git alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

from smartserver.records.model import RevisionId
from smartserver.vcs.base import ToolFailed, VcsError
from smartserver.vcs.git.repository import GitRepository, failure

_OF_REPOSITORIES: Final = frozenset(
    [
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE",
        "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    ]
)  # fmt: skip
"""Variables that are of another repository, where this runs in a hook or an alias of that."""

_SETTINGS: Final = {
    "core.compression": "1",  # A quarter less work for fast-import, and a sixth more on disk.
    "core.hooksPath": os.devnull,
    "core.ignoreCase": "false",  # Else fast-import takes two names for one where the file system does.
    "core.logAllRefUpdates": "false",
    "fastimport.unpackLimit": "1",  # Loose objects are slow to read, and there may be many.
    "gc.auto": "0",
}


def open_bare(folder: str, vcs: str, environment: Mapping[str, str]) -> GitRepository:
    """The repository in a folder, made where there is none. `vcs`: `git sha1` or `git sha256`.

    Raises:
        VcsError: it is of another format, or something else is there.
        ToolFailed: git cannot make it.
    """
    variables = {name: value for name, value in environment.items() if name not in _OF_REPOSITORIES}
    if not os.path.exists(os.path.join(folder, "HEAD")):
        if os.path.isdir(folder) and os.listdir(folder):
            raise VcsError(f"{folder} is not empty, and no bare git repository")
        object_format = vcs.partition(" ")[2]
        command = ["git", "init", "--quiet", "--bare", f"--object-format={object_format}", "--template=", folder]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=variables, check=False)
        if done.returncode:
            raise failure("init", done.returncode, done.stderr)
        with GitRepository(folder, variables) as made:
            for name, value in _SETTINGS.items():
                made.run("config", name, value)
    repository = GitRepository(folder, variables)
    if repository.vcs != vcs:
        repository.close()
        raise VcsError(f"{folder} is a repository of {repository.vcs}, expected one of {vcs}")
    return repository


def set_refs(repository: GitRepository, refs: Mapping[bytes, RevisionId], head: bytes) -> None:
    """Make these all the refs there are, and HEAD name that branch.

    Raises:
        ToolFailed: git takes no ref of that name, or the object is not there.
    """
    gone = [b"delete %b\0\0" % name for name in repository.refs() if name not in refs]
    # First, for a ref may be where there was a folder of refs.
    repository.run("update-ref", "-z", "--no-deref", "--stdin", stdin=b"".join(gone))
    new = [b"update %b\0%b\0\0" % (name, tip.hex().encode()) for name, tip in refs.items()]
    repository.run("update-ref", "-z", "--no-deref", "--stdin", stdin=b"".join(new))
    if not head.startswith(b"refs/heads/"):
        raise ToolFailed("git symbolic-ref", 1, f"HEAD cannot name {os.fsdecode(head)!r}")
    repository.run("symbolic-ref", "HEAD", os.fsdecode(head))
