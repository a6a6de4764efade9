"""Repositories whose upkeep is due early."""

from __future__ import annotations

import pytest
from operations import FEW, MOST_PACKS

from smartserver.store import caches, checkpoint, open_pack, repack, summarise


@pytest.fixture
def early_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FEW", FEW)
    monkeypatch.setattr(repack, "MOST_PACKS", MOST_PACKS)
    monkeypatch.setattr(repack, "FEW_PACKS", MOST_PACKS // 2)
    for module in (open_pack, summarise):
        monkeypatch.setattr(module, "LEAST", 1)
    monkeypatch.setattr(caches.HEADERS, "limit", 0)  # Of packs of one name the cache takes each for the other.
