from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.complete import References
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, TEXT

PAGES = {record.key for record in FIRST + SECOND if record.kind == CHK}
TEXTS = {record.key for record in FIRST + SECOND if record.kind == TEXT}


class Here:
    """A repository that has these pages and texts."""

    def __init__(self, *keys: bytes) -> None:
        self.chk_bytes = self.texts = self
        self.keys = {tuple(key.split(b"\0")) for key in keys}

    def get_parent_map(self, keys: Any) -> dict[tuple[bytes, ...], None]:
        return dict.fromkeys(self.keys.intersection(keys))


def taken(*, kept: bool = True) -> References:
    """The references of both revisions; the second one's page rests on the first one's."""
    found = References(kept=kept)
    for record in FIRST:
        if record.kind == CHK:
            found.page(record.text, None)
    named = found.page(SECOND[2].text, FIRST[2].text)
    assert named[b"readme-id\0joe@example.org-2"] == hashlib.sha1(SECOND[-1].text).hexdigest().encode()
    for record in FIRST + SECOND:
        if record.kind == INVENTORY:
            found.inventory(record.text)
    return found


def test_all_that_is_referred_to_came_or_is_here() -> None:
    repository: Any = Here()
    taken().check(repository, PAGES, TEXTS)
    for missing in PAGES | TEXTS:
        what, named = "page" if missing in PAGES else "text", re.escape(" of ".join(missing.decode().split("\0")))
        with pytest.raises(VcsError, match=f"the pulled revisions refer to a {what} that is missing: {named}$"):
            taken().check(repository, PAGES - {missing}, TEXTS - {missing})
        there: Any = Here(missing)
        taken().check(there, PAGES - {missing}, TEXTS - {missing})


def test_nothing_is_kept_where_breezy_looks_for_it() -> None:
    found = taken(kept=False)
    head = b"chknode:\n65536\n1\n2\n\n"
    found.page(head + b"a\0sha1:%040d\n" % 1, None)
    nothing: Any = Here()
    found.check(nothing, (), ())  # Nothing that it would look for.
    with pytest.raises(ValueError, match="cannot be read as an inventory"):
        found.inventory(b"nothing")


def test_of_a_page_of_pages_only_what_differs_from_its_base_is_read() -> None:
    """Breezy keeps what a page refers to that came before; so the base's own lines are not looked at again."""
    head = b"chknode:\n65536\n1\n2\n\n"
    old = head + b"a\0sha1:%040d\nb\0sha1:%040d\n" % (1, 2)
    new = head + b"a\0sha1:%040d\nb\0sha1:%040d\n" % (1, 3)
    found = References()
    assert found.page(new, old) == {}
    for base in (None, b"a leaf, which no page of pages rests on"):
        whole = References()
        whole.page(new, base)
        for key, lacking in ((b"sha1:%040d" % 1, whole), (b"sha1:%040d" % 3, found)):
            here: Any = Here(*({b"sha1:%040d" % n for n in (1, 3)} - {key}))
            with pytest.raises(VcsError, match="the pulled revisions refer to a page"):
                lacking.check(here, (), ())
    nothing: Any = Here(b"sha1:%040d" % 3)
    found.check(nothing, (), ())


def test_what_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        References().page(b"no page", None)
    with pytest.raises(ValueError, match="cannot be read as an inventory"):
        References().inventory(b"nothing")
