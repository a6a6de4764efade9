"""plugins.breezy_shown: what is damage of a shadow, and what a mistake of this program."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable

import pytest
from breezy.bzr.btree_index import _LeafNode
from breezy.errors import BzrError, NotWriteLocked, ShortReadvError

from smartserver.plugins.breezy_shadow import Shadow
from smartserver.plugins.breezy_shown import DAMAGE, Damaged, raise_bug
from smartserver.records.check import KINDS_OF
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.vcs.base import WrongContent


def raised(read: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as wrong:  # noqa: PT011  # Any.
        read()
    return wrong.value


def says(error: Exception) -> Callable[[], object]:
    def read() -> object:
        raise error

    return read


@pytest.mark.parametrize(
    "read",
    [
        says(Damaged("a page is missing")),
        says(BzrError("damaged")),
        says(ShortReadvError("pack", 1, 2, 3)),
        says(WrongContent(b"key", "its sha1 is another")),
        says(OSError(errno.EIO, "it cannot be read")),
        lambda: zlib.decompress(b"no zlib"),
        lambda: _LeafNode(b"\xff", 2, 1),
    ],
)
def test_damage(read: Callable[[], object]) -> None:
    wrong = raised(read)
    assert isinstance(wrong, DAMAGE)
    raise_bug(wrong)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda: Shadow.mend(None, ValueError()), AttributeError),  # type: ignore[arg-type]
        (lambda: decode_segment(None, 0, KINDS_OF["bzr 2a"]), TypeError),  # type: ignore[arg-type]
        (lambda: decode_segment(b"\x01", 0, KINDS_OF["bzr 2a"]), Malformed),
        (says(NotWriteLocked(object())), NotWriteLocked),
    ],
)
def test_a_mistake(read: Callable[[], object], expected: type[Exception]) -> None:
    wrong = raised(read)
    with pytest.raises(expected) as once_more:
        raise_bug(wrong)
    assert once_more.value is wrong


def test_what_nobody_raised() -> None:
    raise_bug(ValueError())
