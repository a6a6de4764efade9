"""netem.proxy, netem.proxy_thread: tests that need no client; the rest is in tests/sockets."""

from __future__ import annotations

import threading

import pytest

from netem import proxy as proxies
from netem import proxy_thread as module
from netem.link import BUFFER, WINDOW, Link
from netem.proxy import REFILL, Proxy, filled
from netem.proxy_thread import ProxyError, ProxyThread
from netem.tcp_model import TcpModel


def test_before_it_runs_it_has_counted_nothing() -> None:
    proxy = Proxy(1.0, ("127.0.0.1", 1))
    proxy.close()
    proxy.check()
    assert not proxy.take().used


def test_the_link_has_the_seed_no_model_of_tcp_and_a_buffer_that_is_enough_for_the_rate() -> None:
    assert Proxy(1.0, ("h", 1)).link.buffer == BUFFER
    assert Proxy(1.0, ("h", 1), rate=125_000).link.buffer == BUFFER
    assert Proxy(1.0, ("h", 1), rate=1e9).link.buffer == 1e9 * REFILL
    assert Proxy(1.0, ("h", 1), rate=1e9, buffer=7).link.buffer == 7
    assert Proxy(1.0, ("h", 1)).link.window == WINDOW
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


def test_a_thread_that_is_late_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with Proxy(0, None) as proxy:
        loop = proxy._thread.loop
        assert loop is not None
        monkeypatch.setattr(module, "STARTING", 0.0)
        loop.call_soon_threadsafe(go.wait)
        for question in (proxy.take, proxy.counts, lambda: proxy.change(Link(1)), lambda: proxy.relay(("h", 1))):
            with pytest.raises(ProxyError, match="the proxy does not answer after 0 s"):
                question()
        go.set()


def test_one_whose_start_is_interrupted_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closing = threading.Event()

    class Late(ProxyThread):
        def run(self) -> None:
            closing.wait()
            super().run()

    monkeypatch.setattr(proxies, "ProxyThread", Late)
    proxy = Proxy(0, None)
    listening = proxy._thread.listening.wait

    def interrupted(_: float) -> bool:
        monkeypatch.setattr(proxy._thread.listening, "wait", waited)
        raise KeyboardInterrupt

    def waited(timeout: float) -> bool:
        closing.set()
        return listening(timeout)

    monkeypatch.setattr(proxy._thread.listening, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        proxy.start()
    thread = threading.Thread(target=proxy.close, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert proxy._thread.thread is not None
    assert not proxy._thread.thread.is_alive()
