"""agent.reading: which commands the agent may run."""

from __future__ import annotations

import pytest

from smartserver.agent.reading import READING, is_for_agent
from smartserver.cli.main import COMMANDS

URL = "hpss://host/project"


def test_what_reads_is_a_command() -> None:
    assert set(READING) <= set(COMMANDS)


@pytest.mark.parametrize("words", [
    ["log", URL], ["log", "-q", "HPSS+TLS://host/x", "-n", "3"], ["-Dhpss", "-Dhpssdetail", "cat", URL, "path"],
])  # fmt: skip
def test_it_may(words: list[str]) -> None:
    assert is_for_agent(words)


@pytest.mark.parametrize("words", [
    [], ["log"], ["-Dhpss"], ["log", "/folder"], ["log", "hpss+ssh://host/x"], ["log", "sftp://host/x"],
    ["push", "/folder", URL], ["--stats", "log", URL], ["-D", "hpss", "log", URL], [URL, "log"],
])  # fmt: skip
def test_it_may_not(words: list[str]) -> None:
    assert not is_for_agent(words)
