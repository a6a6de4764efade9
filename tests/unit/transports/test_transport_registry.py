"""transports.registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transports import registry
from transports.local import LocalTransport
from transports.memory import MemoryTransport


@pytest.fixture(autouse=True)
def _own_openers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "OPENERS", dict(registry.OPENERS))


def test_file(tmp_path: Path) -> None:
    transport = registry.open_url(f"file://{tmp_path}")
    assert isinstance(transport, LocalTransport)
    assert transport.describe() == str(tmp_path)


def test_memory() -> None:
    assert isinstance(registry.open_url("memory:"), MemoryTransport)


@pytest.mark.parametrize("url", ["gopher://x/y", "/srv/x", ""])
def test_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match=f"known schemes: {', '.join(sorted(registry.OPENERS))}$"):
        registry.open_url(url)


def test_every_opener_loads() -> None:
    for opener in registry.OPENERS.values():
        module, _, function = opener.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function))


def test_registered_opener_is_loaded_when_needed() -> None:
    registry.register("later", "no.such.module:open")
    with pytest.raises(ModuleNotFoundError):
        registry.open_url("later://x")
    registry.register("again", "transports.memory:from_url")
    with pytest.raises(ValueError, match="no name"):
        registry.open_url("again:")


def test_a_scheme_has_one_opener() -> None:
    registry.register("file", registry.OPENERS["file"])
    with pytest.raises(ValueError, match=r"is opened by transports\.local:from_url"):
        registry.register("file", "transports.memory:from_url")


@pytest.mark.parametrize("opener", ["transports.memory", ":from_url", "transports.memory:"])
def test_opener_is_a_module_and_a_function(opener: str) -> None:
    with pytest.raises(ValueError, match="module:function"):
        registry.register("new", opener)


def test_import_loads_no_backend() -> None:
    loaded = "import sys, transports.registry; print([m for m in sys.modules if m.startswith('transports.')])"
    run = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert "transports.local" not in run.stdout
    assert "transports.registry" in run.stdout
