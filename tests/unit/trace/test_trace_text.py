"""smartserver.trace.text: the lines a person reads, to the character."""

from __future__ import annotations

import pytest

from smartserver.trace.recorder import Recorder
from smartserver.trace.text import size, summary


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1234, "1.2 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (999_999_999, "1.0 GB"),
        (2_500_000_000, "2.5 GB"),
        (7_000_000_000_000, "7.0 TB"),
        (7_000_000_000_000_000, "7000.0 TB"),
    ],
)
def test_size(count: int, shown: str) -> None:
    assert size(count) == shown


def test_summary_says_whose_link_is_not_counted() -> None:
    assert summary(Recorder(lambda: 5.0), 5.5, "sftp://h/srv/") == (
        "hpss: 0 round trips, 0 calls, 0 B up, 0 B down, 500 ms, all to a process of this machine; "
        "what that did at sftp://h/srv/ is not counted"
    )
