"""netem.proxy: tests that need no socket; the rest is in tests/sockets."""

from __future__ import annotations

import pytest

from netem.link import BUFFER, WINDOW, Link
from netem.proxy import REFILL, Proxy, filled
from netem.tcp_model import TcpModel


def test_before_it_runs_it_has_counted_nothing() -> None:
    proxy = Proxy(1.0, ("127.0.0.1", 1))
    proxy.close()
    proxy.check()
    assert not proxy.take().used


def test_the_buffer_is_enough_for_the_rate() -> None:
    assert Proxy(1.0, ("h", 1)).link.buffer == BUFFER
    assert Proxy(1.0, ("h", 1), rate=125_000).link.buffer == BUFFER
    assert Proxy(1.0, ("h", 1), rate=1e9).link.buffer == 1e9 * REFILL
    assert Proxy(1.0, ("h", 1), rate=1e9, buffer=7).link.buffer == 7
    assert Proxy(1.0, ("h", 1)).link.window == WINDOW


def test_the_link_has_the_seed_and_no_model_of_tcp() -> None:
    proxy = Proxy(1.0, ("h", 1), seed=5)
    assert proxy.link.seed == 5
    with pytest.raises(ValueError, match="only the simulated network"):
        proxy.change(Link(1.0, tcp=TcpModel()))


def test_a_link_that_it_becomes_has_the_buffer_of_one_that_it_began_with() -> None:
    proxy = Proxy(1.0, ("h", 1), buffer=7)
    proxy.change(Link(0, rate=1e9))
    assert proxy.link == Proxy(0, ("h", 1), rate=1e9).link == filled(Link(0, rate=1e9))
    assert proxy.link.buffer == 1e9 * REFILL
    proxy.change(Link(0, rate=1e9, buffer=7))
    assert proxy.link.buffer == 7
    proxy.change(Link(0))
    assert proxy.link.buffer == BUFFER
