from __future__ import annotations

from typing import Any

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.check_bzr import CHK, INVENTORY, TEXT
from smartserver.vcs.base import VcsError
from smartserver.vcs.brz_complete import References

PAGES = {record.key for record in FIRST + SECOND if record.kind == CHK}
TEXTS = {record.key for record in FIRST + SECOND if record.kind == TEXT}


class Here:
    """A repository that has these pages and texts."""

    def __init__(self, *keys: bytes) -> None:
        self.chk_bytes = self.texts = self
        self.keys = {tuple(key.split(b"\0")) for key in keys}

    def get_parent_map(self, keys: Any) -> dict[tuple[bytes, ...], None]:
        return dict.fromkeys(self.keys.intersection(keys))


def taken() -> References:
    """What both revisions refer to; the second one's page rests on the first one's."""
    found = References()
    for record in FIRST:
        if record.kind == CHK:
            found.page(record.text, None)
    assert list(found.page(SECOND[2].text, FIRST[2].text)) == [b"readme-id\0joe@example.org-2"]
    for record in FIRST + SECOND:
        if record.kind == INVENTORY:
            found.inventory(record.text)
    return found


def test_all_that_is_referred_to_came_or_is_here() -> None:
    repository: Any = Here()
    taken().check(repository, PAGES, TEXTS)
    for missing in PAGES | TEXTS:
        with pytest.raises(VcsError, match=r"the repository lacks a (page|text) that what was pulled refers to"):
            taken().check(repository, PAGES - {missing}, TEXTS - {missing})
        there: Any = Here(missing)
        taken().check(there, PAGES - {missing}, TEXTS - {missing})


def test_what_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        References().page(b"no page", None)
    with pytest.raises(ValueError, match="no inventory"):
        References().inventory(b"nothing")
