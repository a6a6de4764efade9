"""bench.breezy: where Breezy and our plugin are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.breezy import PLUGIN, breezy_library, plugin_at

from smartserver.cli.errors import CommandError


def test_without_breezy_it_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert breezy_library(None) == {}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "python").symlink_to("/bin/false")
    for tools in (None, tmp_path):
        with pytest.raises(CommandError, match="there is no Breezy"):
            breezy_library(tools)


def test_the_plugin_lies_where_breezy_is_told() -> None:
    name, _, folder = plugin_at().partition("@")
    assert name == PLUGIN
    assert (Path(folder) / "__init__.py").is_file()
