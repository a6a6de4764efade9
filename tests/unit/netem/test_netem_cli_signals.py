from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from netem.cli.signals import ending, interruptible

ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDS}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.mark.parametrize("number", ENDS)
def test_each_interrupts_and_is_as_before_afterwards(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) == signal.SIG_DFL


def test_the_end_of_the_terminal_is_ignored_where_it_was() -> None:
    """By `nohup`; an ignored SIGINT is what shells give to what they start in the background."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    assert ending() == [signal.SIGINT, signal.SIGTERM]
    with interruptible():
        signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGINT)
