from __future__ import annotations

import pytest

from smartserver.errors import Cancelled, LimitExceeded
from smartserver.store.allowance import (
    DECODED,
    DECODED_OF_BYTE,
    DECODED_OF_STORED,
    STEPS,
    STEPS_OF_BYTE,
    STEPS_OF_RECORD,
    STEPS_OF_STORED,
    Allowance,
)


def test_steps_are_limited_by_what_came_and_what_is_stored() -> None:
    allowance = Allowance()
    allowance.came(10)
    allowance.rests_on(1000)
    allowance.rests_on(900)
    most = STEPS + 10 * STEPS_OF_BYTE + 1000 * STEPS_OF_STORED
    allowance.charge(most)
    with pytest.raises(LimitExceeded) as caught:
        allowance.charge(1)
    assert str(caught.value) == f"too many steps of work for one request: {most + 1}, at most {most} are allowed"


def test_decoded_bytes_are_limited_by_what_came() -> None:
    allowance = Allowance()
    allowance.came(7)
    most = DECODED + 7 * DECODED_OF_BYTE
    allowance.decode(most)
    with pytest.raises(LimitExceeded) as caught:
        allowance.decode(1)
    assert str(caught.value) == f"too many decoded bytes of one request: {most + 1}, at most {most} are allowed"
    allowance.restart()
    allowance.decode(most)
    assert (allowance.steps, allowance.decoded) == (0, most)


def test_what_reads_content_may_do_more_for_each_record() -> None:
    allowance = Allowance()
    allowance.reads(10, 500)
    allowance.charge(STEPS + 10 * STEPS_OF_RECORD)
    allowance.decode(DECODED + 500 * DECODED_OF_STORED)
    with pytest.raises(LimitExceeded):
        allowance.charge(1)
    with pytest.raises(LimitExceeded):
        allowance.decode(1)


def test_nothing_is_charged_for_a_client_that_is_gone() -> None:
    allowance = Allowance(limited=False)
    allowance.charge(1 << 60)
    allowance.decode(1 << 60)
    allowance()
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        allowance()
    with pytest.raises(Cancelled):
        allowance.charge(0)
    with pytest.raises(Cancelled):
        allowance.decode(0)
