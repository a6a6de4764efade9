"""netem.proxy_thread, under a proxy: what it says when its thread is late, or failed to begin."""

from __future__ import annotations

import threading

import pytest

from netem import proxy as proxies
from netem import proxy_thread as module
from netem.link import Link
from netem.proxy import Proxy
from netem.proxy_thread import ProxyError, ProxyThread


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
