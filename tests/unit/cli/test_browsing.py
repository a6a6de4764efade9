"""cli.browsing, cli.ls, cli.log: places with a revision, dates, lines and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartserver.cli.browsing import split_revision
from smartserver.cli.errors import CommandError
from smartserver.cli.log import date_of
from smartserver.records.browse import LogEntry


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("hpss://host/project", ("hpss://host/project", "")),
        ("hpss://host/project@main", ("hpss://host/project", "main")),
        ("hpss://host/project/doc@feature/x@2", ("hpss://host/project/doc", "feature/x@2")),
        ("hpss+ssh://me@host/srv/project", ("hpss+ssh://me@host/srv/project", "")),
        ("hpss+ssh://me@host/srv/project@v1", ("hpss+ssh://me@host/srv/project", "v1")),
        ("hpss://host", ("hpss://host", "")),
        ("hpss://me@host", ("hpss://me@host", "")),
        ("hpss://host/a%40b@c", ("hpss://host/a%40b", "c")),
        ("/srv/project@main", ("/srv/project", "main")),
        ("project@", ("project", "")),
    ],
)
def test_a_place_and_its_revision(place: str, expected: tuple[str, str]) -> None:
    assert split_revision(place) == expected


def test_a_folder_with_an_at_is_itself(tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    assert split_revision(f"{tmp_path}/a@b") == (f"{tmp_path}/a@b", "")
    assert split_revision(f"{tmp_path}/a@c") == (f"{tmp_path}/a", "c")
    assert split_revision(f"{tmp_path}/a@b/doc@x/y") == (f"{tmp_path}/a@b/doc", "x/y")


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(CommandError, match="the name of the revision is not UTF-8"):
        split_revision("hpss://host/project@\udce4")


@pytest.mark.parametrize(
    ("seconds", "zone", "expected"),
    [
        (0, 0, "1970-01-01 00:00:00 +0000"),
        (1_800_000_000, 90, "2027-01-15 09:30:00 +0130"),
        (-1, -480, "1969-12-31 15:59:59 -0800"),
        (1 << 60, 0, f"{1 << 60} seconds after 1970"),
        (0, 60 * 24 * 2, "0 seconds after 1970"),
    ],
)
def test_a_date_is_that_of_the_author(seconds: int, zone: int, expected: str) -> None:
    assert date_of(LogEntry("", "", seconds, zone)) == expected
