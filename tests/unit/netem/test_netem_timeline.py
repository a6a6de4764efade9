from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from netem.counter import Counts, Message
from netem.timeline import TALLEST, svg

TEXT = "{http://www.w3.org/2000/svg}text"


def drawn(counts: Counts, rtt: float, title: str = "") -> tuple[float, list[str]]:
    picture = ElementTree.fromstring(svg(counts, rtt, title))
    return float(picture.attrib["height"]), [text.text or "" for text in picture.iter(TEXT)]


def message(sent: float, delivered: float | None, *, up: bool = True, size: int = 5) -> Message:
    return Message(1, up, size, 1, 1, sent, delivered)


def test_messages_rounds_and_title() -> None:
    messages = (message(7.0, 7.1), message(7.1, 7.2, up=False, size=2000), message(7.2, None))
    _, texts = drawn(Counts(connections=1, depth=4, bytes_up=10, messages=messages, omitted=3), 0.2, "a <b> & c")
    assert texts[:2] == ["a <b> & c", "2 round trips, 1 connection, 10 B up, 0 B down"]
    for text in ("0 RTT", "1 RTT", "client", "server", "5 B", "2.0 KB", "5 B, not delivered", "and 3 messages more"):
        assert text in texts


@pytest.mark.parametrize("counts", [Counts(), Counts(messages=(message(1, 1),))])
@pytest.mark.parametrize("rtt", [0, 0.1])
def test_nothing_and_no_time(counts: Counts, rtt: float) -> None:
    assert drawn(counts, rtt)[0] < 1000


def test_a_long_operation_is_drawn_smaller() -> None:
    height, texts = drawn(Counts(messages=(message(0, 0.1), message(100, 100.1))), 0.01)
    assert height < TALLEST + 200
    assert len(texts) < 2000
