"""records.system: what is asked of a system, and how systems are found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from smartserver.errors import Unsupported
from smartserver.records.check import KEYS
from smartserver.records.system import SYSTEMS, System, register, system_of


def test_an_unknown_one_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="the version-control system 'cvs'") as refused:
        system_of("cvs")
    assert refused.value.speaks == ", ".join(sorted(SYSTEMS))
    assert SYSTEMS.keys() >= {"bzr 2a", "git sha1", "git sha256"}


def test_a_second_one_of_a_name_or_check_is_refused() -> None:
    git = system_of("git sha1")

    class Second(System):
        name = "git sha1"
        kinds = git.kinds

    with pytest.raises(ValueError, match="the system 'git sha1' is registered already"):
        register(Second())
    other = Second()
    other.name = "git sha2"
    other.keys = {"git-sha1": KEYS["sha1-key"]}
    with pytest.raises(ValueError, match="the check 'git-sha1' is registered already: 'git sha2' must"):
        register(other)
    assert SYSTEMS["git sha1"] is git
    assert "git sha2" not in SYSTEMS
    assert KEYS["git-sha1"] is git.keys["git-sha1"]


def test_all_are_found_without_being_imported() -> None:
    script = "from smartserver.records.system import every_system; print(*sorted(every_system()), sep=', ')"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"bzr 2a", "git sha1", "git sha256"} <= set(run.stdout.strip().split(", "))
