"""A bare git repository for one command, or kept between its runs: other programs work in it with git alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

from smartserver.records.model import RevisionId
from smartserver.vcs.base import ToolFailed, VcsError
from smartserver.vcs.git.repository import GitRepository, failure

OF_REPOSITORIES: Final = frozenset(
    [
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS", "GIT_DEFAULT_REF_FORMAT", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_REFERENCE_BACKEND", "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    ]
)  # fmt: skip
"""Variables that git sets for another repository, where this runs in a hook or an alias of that: those that
`git rev-parse --local-env-vars` lists, and a few more. Among them are the settings of `git -c`, which would be stronger
than `_SETTINGS`: a hook of the user's would run here."""

_SETTINGS: Final = {
    "core.compression": "1",  # A quarter less work for fast-import, and a sixth more on disk.
    "core.hooksPath": os.devnull,
    "core.ignoreCase": "false",  # Else fast-import takes two names for one where the file system does.
    "core.logAllRefUpdates": "false",
    "fastimport.unpackLimit": "1",  # Loose objects are slow to read, and there may be many.
    "gc.auto": "0",
    "smartserver.kept": "true",  # Last: all others are there where this one is.
}


def open_bare(folder: str, vcs: str, environment: Mapping[str, str]) -> GitRepository:
    """The repository that this function created in a folder, created where the folder is empty or missing. `vcs`:
    `git sha1` or `git sha256`.

    Raises:
        VcsError: it is of another format, or something else is there.
        ToolFailed: git cannot create it.
    """
    variables = _without_repository(environment)
    if not check_kept(folder, environment):
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


def check_kept(folder: str, environment: Mapping[str, str]) -> bool:
    """Whether `open_bare` created the repository in a folder; False: there is nothing.

    Raises:
        VcsError: something else is there, as a repository of the user's, whose refs `set_refs` would delete.
    """
    if not os.path.isdir(folder) or not os.listdir(folder):
        return False
    with GitRepository(folder, _without_repository(environment)) as found:
        arguments = ("config", "--local", "--type=bool", "--get", "smartserver.kept")
        # Git ends with 1 without such a setting, and with 128 if there is no repository.
        if found.run(*arguments, accept=(0, 1, 128)) != b"true\n":
            raise VcsError(f"{folder} is not a repository that smartserver created to keep: name a new folder")
    return True


def _without_repository(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in OF_REPOSITORIES}


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
