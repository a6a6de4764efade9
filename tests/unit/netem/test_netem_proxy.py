"""What needs no socket; the rest is in tests/sockets."""

from __future__ import annotations

import inspect
import threading

import pytest

from netem import proxy as module
from netem.link import BUFFER, WINDOW, Link
from netem.proxy import REFILL, Proxy, ProxyError, filled
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


def test_a_link_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="from 0 on"):
        Proxy(-1, ("h", 1))
    for rate in (0, float("inf")):
        with pytest.raises(ValueError, match="more than 0"):
            Proxy(1, ("h", 1), rate=rate)


def test_a_link_that_it_becomes_has_the_buffer_of_one_that_it_began_with() -> None:
    proxy = Proxy(1.0, ("h", 1), buffer=7)
    proxy.change(Link(0, rate=1e9))
    assert proxy.link == Proxy(0, ("h", 1), rate=1e9).link == filled(Link(0, rate=1e9))
    assert proxy.link.buffer == 1e9 * REFILL
    proxy.change(Link(0, rate=1e9, buffer=7))
    assert proxy.link.buffer == 7
    proxy.change(Link(0))
    assert proxy.link.buffer == BUFFER


def test_a_thread_that_is_late_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with Proxy(0, None) as proxy:
        assert proxy._loop is not None
        monkeypatch.setattr(module, "STARTING", 0.0)
        proxy._loop.call_soon_threadsafe(go.wait)
        for question in (proxy.take, proxy.counts, lambda: proxy.change(Link(1)), lambda: proxy.relay(("h", 1))):
            with pytest.raises(ProxyError, match="the proxy does not answer after 0 s"):
                question()
        go.set()


def test_one_that_does_not_listen_in_time_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    class Late(Proxy):
        def _run(self) -> None:
            go.wait()
            super()._run()

    monkeypatch.setattr(module, "STARTING", 0.0)
    proxy = Late(0, None)
    with pytest.raises(ProxyError, match="the proxy does not listen after 0 s"):
        proxy.start()
    go.set()
    proxy._listening.wait()
    proxy.close()


def test_one_whose_start_is_interrupted_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closing = threading.Event()

    class Late(Proxy):
        def _run(self) -> None:
            closing.wait()
            super()._run()

    proxy = Late(0, None)
    listening = proxy._listening.wait

    def interrupted(_: float) -> bool:
        monkeypatch.setattr(proxy._listening, "wait", waited)
        raise KeyboardInterrupt

    def waited(timeout: float) -> bool:
        closing.set()
        return listening(timeout)

    monkeypatch.setattr(proxy._listening, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        proxy.start()
    thread = threading.Thread(target=proxy.close, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert proxy._thread is not None
    assert not proxy._thread.is_alive()


def test_every_argument_and_error_is_described() -> None:
    said = f"{Proxy.__doc__}{Proxy.__init__.__doc__}"
    missing = [name for name in inspect.signature(Proxy).parameters if f"`{name}`" not in said]
    assert not missing
    for call in (Proxy.start, Proxy.relay, Proxy.change, Proxy.take, Proxy.counts):
        assert "ProxyError: " in (call.__doc__ or "")
