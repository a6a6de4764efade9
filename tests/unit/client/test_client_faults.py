"""client.faults: the line about faults of a push, and nothing for what is not known here."""

from __future__ import annotations

import pytest

from smartserver.client.faults import MOST_FAULTS, lines
from smartserver.wire.messages import Advice, raw


def line(faults: object) -> list[str]:
    return list(lines([Advice("faults", raw({"faults": faults}))], "hpss://h:1/p", "git fsck"))


def test_each_fault_is_named_with_its_first_record() -> None:
    (said,) = line({"badTimezone": [3, "ab12"], "zeroPaddedFilemode": [1, "cd34"], "other": "odd"})
    faults = "badTimezone in ab12 and 2 more, zeroPaddedFilemode in cd34, other"
    assert said == f"hpss: hpss://h:1/p: taken with faults that git fsck finds: {faults}"
    (said,) = line({f"fault{number}": [1, "ab"] for number in range(99)})
    assert said.count(" in ab") == MOST_FAULTS


@pytest.mark.parametrize(
    "advice", [Advice("moon", raw({"faults": {"x": 1}})), Advice("faults", raw({})), Advice("faults", raw([1]))]
)
def test_what_is_not_known_here_is_not_shown(advice: Advice) -> None:
    assert list(lines([advice], "hpss://h:1/p", "git fsck")) == []
    assert line({}) == []
