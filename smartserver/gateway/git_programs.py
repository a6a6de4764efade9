"""The git programs that the gateway runs: their environment and settings, and how they are started."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from smartserver.programs import foreign_environment

_PROTOCOL: Final = re.compile(r"version=[012]")
"""The entries of GIT_PROTOCOL that git's server uses."""

_SETTINGS: Final = {
    "core.alternateRefsCommand": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.threads": "1",  # One client must not take all cores; `git index-pack` needs less memory.
    "pack.windowMemory": "64m",  # A request may cause git to search for deltas.
    "pack.deltaCacheSize": "32m",
    "core.deltaBaseCacheLimit": "32m",
    "core.packedGitWindowSize": "32m",  # `MEMORY` counts mapped files.
    "core.packedGitLimit": "512m",
    "receive.unpackLimit": "1",
    "uploadpack.allowFilter": "true",
}
"""The settings of all git programs that run here. No file of the machine or the user is read."""

NICE: Final = 10
"""The niceness of a program for which no client waits."""

MEMORY: Final = 4 << 30
"""The most bytes of address space of a program that reads data of a client. An object may have 1 GiB, and so may its
base."""


def environment() -> dict[str, str]:
    """Return the environment of git programs in repositories of the gateway."""
    found = foreign_environment().items()
    kept = {name: value for name, value in found if not name.startswith("GIT_") or name == "GIT_EXEC_PATH"}
    kept |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for number, (name, value) in enumerate(_SETTINGS.items()):
        kept |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return kept | {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def protocol_of(text: str) -> str:
    """Return the protocol version in a client's GIT_PROTOCOL, as git reads it; empty if it has no known version."""
    return next((each for each in text.split(":") if _PROTOCOL.fullmatch(each)), "")


def start_upload_pack(
    folder: str, lease: int, protocol: str, *options: str, stdin: int, stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    """Start git's own server of fetches, as the leader of a process group. `lease`: a descriptor that stays open in the
    program while it runs."""
    variables = environment() | ({"GIT_PROTOCOL": protocol} if protocol else {})
    return subprocess.Popen(
        ["git", "upload-pack", "--strict", *options, folder],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=variables,
        pass_fds=(lease,),
        process_group=0,
    )


def run(
    command: Sequence[str], variables: Mapping[str, str], stdin: int = subprocess.DEVNULL, *, nice: bool = False
) -> tuple[int, bytes]:
    """Run a git program to its end, within `MEMORY`. Return its status and its standard error. `nice`: run it with low
    priority."""
    process = subprocess.Popen(
        ["git", *command], stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=dict(variables)
    )
    _limit(process.pid)
    if nice:
        with contextlib.suppress(OSError):  # It may have ended.
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    try:
        _, said = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process.returncode, said


def _limit(process: int) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Only Linux has it, and it may have ended.
        resource.prlimit(process, resource.RLIMIT_AS, (MEMORY, MEMORY))
