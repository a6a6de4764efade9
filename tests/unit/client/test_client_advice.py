"""client.advice: the words of each kind, and that each is shown once a day, whatever else runs."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from smartserver.client.advice import DAY, ENDING, line, lines
from smartserver.wire.messages import Advice, raw

URL = "hpss://h:1/project"
PACKS = Advice("packs", raw({"packs": 1234}))
CLIENT = Advice("client", raw({"client": "0.1", "expected": "0.2"}))


@pytest.mark.parametrize(
    "advice", [Advice("moon", raw({})), Advice("packs", raw({})), Advice("packs", raw({"packs": "many"}))]
)
def test_what_is_not_known_here_is_not_shown(advice: Advice) -> None:
    assert line(advice, URL, "brz pack") is None
    assert lines([advice], URL, "brz pack", None, always=True) == []


def test_records_that_wait_for_a_checkpoint() -> None:
    said = line(Advice("log", raw({"records": 1234})), URL, "smartserver pack")
    assert (
        said
        == f"hpss: {URL}: 1,234 changes are read each time it is opened: `smartserver pack {URL}` saves their result"
    )


def test_each_kind_once_a_day(tmp_path: Path) -> None:
    known = str(tmp_path / "known")

    def shown(now: float, *advice: Advice, always: bool = False) -> int:
        return len(lines(advice, URL, "brz pack", known, always=always, clock=lambda: now))

    assert shown(1e6, PACKS) == 1
    assert shown(1e6 + 9, PACKS, PACKS) == 0
    assert shown(1e6 + 9, PACKS, CLIENT) == 1
    assert shown(1e6 + DAY - 1, PACKS, CLIENT) == 0
    assert shown(1e6 + DAY - 1, PACKS, CLIENT, always=True) == 2
    assert shown(1e6 + DAY, PACKS, CLIENT) == 1
    assert shown(1e6 + DAY + 9, PACKS, CLIENT) == 1
    assert shown(1e6, PACKS) == 1, "the clock was put back"
    assert [path.name for path in tmp_path.iterdir()] == ["known" + ENDING]


def test_of_two_commands_at_once_one_shows_it(tmp_path: Path) -> None:
    known = tmp_path / "known"
    with open(f"{known}{ENDING}", "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert lines([PACKS], URL, "brz pack", str(known)) == []
        assert len(lines([PACKS], URL, "brz pack", str(known), always=True)) == 1
    assert len(lines([PACKS], URL, "brz pack", str(known))) == 1


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x81\xa5packs\xa1x", b"\x90", bytes(9000)])
def test_a_damaged_file_is_made_anew(tmp_path: Path, content: bytes) -> None:
    Path(f"{tmp_path}/known{ENDING}").write_bytes(content)
    assert len(lines([PACKS], URL, "brz pack", f"{tmp_path}/known")) == 1
    assert lines([PACKS], URL, "brz pack", f"{tmp_path}/known") == []


def test_where_nothing_can_be_kept_nothing_is_shown(tmp_path: Path) -> None:
    for known in (None, f"{tmp_path}/absent/known"):
        assert lines([PACKS], URL, "brz pack", known) == []
        assert len(lines([PACKS], URL, "brz pack", known, always=True)) == 1


def test_faults_are_of_this_push_and_always_shown(tmp_path: Path) -> None:
    faults = Advice("faults", raw({"faults": {"badTimezone": [3, "ab12"]}}))
    for knowledge in (str(tmp_path / "known"), None):
        for _ in range(2):
            assert len(lines([faults], URL, "brz pack", knowledge)) == 1
    assert len(lines([faults, PACKS], URL, "brz pack", str(tmp_path / "known"))) == 2
    assert len(lines([faults, PACKS], URL, "brz pack", str(tmp_path / "known"))) == 1
