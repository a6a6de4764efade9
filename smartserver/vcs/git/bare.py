"""Opens the bare git repositories that smartserver creates, for one run of a command or to be kept between runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

from smartserver.programs import foreign_environment
from smartserver.records.model import RevisionId
from smartserver.vcs.base import ToolFailed, VcsError
from smartserver.vcs.git.repository import GitRepository, failure

_KEPT: Final = "smartserver.kept"
"""The setting that marks a repository as created by this module."""

_SETTINGS: Final = {
    "core.alternateRefsCommand": "false",
    "core.compression": "1",  # A quarter less work for fast-import, and a sixth more on disk.
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.ignoreCase": "false",  # Else fast-import takes two names for one where the file system does.
    "core.logAllRefUpdates": "false",
    "fastimport.unpackLimit": "1",  # Loose objects are slow to read, and there may be many.
    "gc.auto": "0",
}
"""Settings for each run of git. They override the repository's own settings, so that no hook or setting there runs a
program."""


def open_bare(folder: str, vcs: str, environment: Mapping[str, str]) -> GitRepository:
    """Return the repository that this function created in a folder, or create it if the folder is empty or missing.
    `vcs`: `git sha1` or `git sha256`."""
    variables = _variables(environment)
    if not check_kept(folder, environment):
        object_format = vcs.partition(" ")[2]
        command = ["git", "init", "--quiet", "--bare", f"--object-format={object_format}", "--template=", folder]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=variables, check=False)
        if done.returncode:
            raise failure("init", done.returncode, done.stderr)
        with GitRepository(folder, variables) as made:
            made.run("config", _KEPT, "true")
    repository = GitRepository(folder, variables)
    if repository.vcs != vcs:
        repository.close()
        raise VcsError(f"{folder} is a repository of {repository.vcs}, expected one of {vcs}")
    return repository


def check_kept(folder: str, environment: Mapping[str, str]) -> bool:
    """Return True if `open_bare` created the repository in a folder, and False if the folder is empty or missing.

    Raises:
        VcsError: the folder has other content.
    """
    if not has_content(folder, environment):
        return False
    with GitRepository(folder, _variables(environment)) as found:
        arguments = ("config", "--local", "--type=bool", "--get", _KEPT)
        # Git ends with 1 without such a setting, and with 128 if there is no repository.
        if found.run(*arguments, accept=(0, 1, 128)) != b"true\n":
            raise VcsError(f"{folder} was not created by smartserver: choose a new folder")
    return True


def has_content(folder: str, environment: Mapping[str, str]) -> bool:
    """Return True if a folder exists and is not empty. Raises VcsError if it belongs to another user."""
    try:
        owner = os.stat(folder).st_uid
    except FileNotFoundError:
        return False
    # As git's safe.directory: with sudo, root works in the folders of the user who called it.
    if owner != os.geteuid() and (os.geteuid() or str(owner) != environment.get("SUDO_UID")):
        raise VcsError(f"{folder} belongs to user {owner}, who may have prepared it: choose a folder of your own")
    return os.path.isdir(folder) and bool(os.listdir(folder))


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for number, (name, value) in enumerate(_SETTINGS.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return foreign_environment(environment) | settings


def set_refs(repository: GitRepository, refs: Mapping[bytes, RevisionId], head: bytes) -> None:
    """Set the refs of a repository to exactly these, and HEAD to the branch `head`."""
    gone = [b"delete %b\0\0" % name for name in repository.refs() if name not in refs]
    # Deletions come first: a new ref may have the name of an old folder of refs.
    repository.run("update-ref", "-z", "--no-deref", "--stdin", stdin=b"".join(gone))
    new = [b"update %b\0%b\0\0" % (name, tip.hex().encode()) for name, tip in refs.items()]
    repository.run("update-ref", "-z", "--no-deref", "--stdin", stdin=b"".join(new))
    if not head.startswith(b"refs/heads/"):
        raise ToolFailed("git symbolic-ref", 1, f"HEAD cannot name {os.fsdecode(head)!r}")
    repository.run("symbolic-ref", "HEAD", os.fsdecode(head))
