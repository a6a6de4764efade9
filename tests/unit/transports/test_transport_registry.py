"""transports.registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transports import registry
from transports.local import LocalTransport


def test_file(tmp_path: Path) -> None:
    transport = registry.open_url(f"file://{tmp_path}")
    assert isinstance(transport, LocalTransport)
    assert transport.describe() == str(tmp_path)


@pytest.mark.parametrize("url", ["gopher://x/y", "/srv/x", ""])
def test_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match=f"known schemes: {', '.join(sorted(registry.OPENERS))}$"):
        registry.open_url(url)


def test_every_opener_loads() -> None:
    for opener in registry.OPENERS.values():
        module, _, function = opener.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function))


def test_import_loads_no_backend() -> None:
    loaded = "import sys, transports.registry; print([m for m in sys.modules if m.startswith('transports.')])"
    run = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert "transports.local" not in run.stdout
    assert "transports.registry" in run.stdout


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "transports.s3", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ValueError, match=r"^s3:// needs obstore: pip install 'smartserver\[s3\]'$"):
        registry.open_url("s3://bucket")
