"""The environments of the programs that this package starts, and the words for their exit statuses.

Every start of git, ssh and Python takes its environment from a function of this module, which drops variables that a
user or a parent program set for another purpose. Under the agent, the command at the terminal starts the programs that
prompt the user (`git credential`), and passes on all of its variables, as git does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

OF_REPOSITORIES: Final = frozenset(
    [
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS", "GIT_DEFAULT_REF_FORMAT", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_REFERENCE_BACKEND", "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    ]
)  # fmt: skip
"""Variables that git sets for the repository in which it runs a program: those of `git rev-parse --local-env-vars`,
which include the settings of `git -c`, and a few more."""

OF_ONE_COMMAND: Final = frozenset(["GIT_CONFIG"])
"""Variables that only `git config` reads. They are removed, because git itself does not follow them."""


def repository_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that works in the repository in which this process was started."""
    return {name: value for name, value in environment.items() if name not in OF_ONE_COMMAND}


def foreign_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a program that works in another repository or on another machine. `environment`: the
    variables to copy; by default those of this process."""
    found = os.environ if environment is None else environment
    return {name: value for name, value in found.items() if name not in OF_REPOSITORIES}


def python(*words: str) -> list[str]:
    """Return the command that runs this Python again with `words`. The new process does not search the current folder
    for modules (-P). Like this process, it uses or ignores Python's variables and the user's site-packages."""
    flags = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [sys.executable, "-P", *[flag for flag, is_set in flags.items() if is_set], *words]


def exit_reason(status: int) -> str:
    """Describe an exit status of `subprocess`: `status 3`, or `signal SIGSEGV` for -11."""
    if status >= 0:
        return f"status {status}"
    import signal  # Loaded late, because few programs end by a signal.

    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # A real-time signal has no name.
        return f"signal {-status}"
