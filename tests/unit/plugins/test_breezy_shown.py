"""plugins.breezy.shown: what is damage of a shadow, and what a mistake of this program."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from breezy.bzr.btree_index import _LeafNode
from breezy.errors import BzrError, NotWriteLocked, ShortReadvError

from smartserver.plugins.breezy.shadow import Shadow
from smartserver.plugins.breezy.shown import DAMAGE, Damaged, Shown, raise_bug
from smartserver.records.check import KINDS_OF
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.vcs.base import WrongContent
from smartserver.vcs.brz_compat import ChunkedContentFactory, StoreKey


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


ONE, TWO, OTHER = (b"f-id", b"one"), (b"f-id", b"two"), (b"f-id", b"\xff")


class Kept:
    """A shadow whose store gives these keys, whatever it is asked for; each time it is mended the next of them."""

    def __init__(self, *given: list[StoreKey]) -> None:
        self._given = list(given)
        self.why: list[str] = []

    def store(self, name: str) -> Any:
        return self

    def get_record_stream(self, keys: Iterable[StoreKey], ordering: str, include_delta_closure: bool) -> Iterator[Any]:
        for key in self._given[0]:
            yield ChunkedContentFactory(key, (), None, [b"text of ", *key])

    def mend(self, wrong: BaseException) -> bool:
        self.why.append(str(wrong))
        return bool(self._given.pop(0) and self._given)


def texts(kept: Kept) -> list[StoreKey]:
    store = Shown("texts", kept)  # type: ignore[arg-type]
    return [each.key for each in store.get_record_stream([ONE, TWO], "unordered", True)]


@pytest.mark.parametrize(
    ("given", "named"), [([ONE, ONE], "f-id one"), ([ONE, OTHER], "662d696400ff"), ([OTHER], "662d696400ff")]
)
def test_what_comes_twice_or_was_not_asked_for_is_damage(given: list[StoreKey], named: str) -> None:
    mended = Kept(given, [TWO] if ONE in given else [TWO, ONE])
    assert sorted(texts(mended)) == [ONE, TWO]
    why = f"the texts that are kept of the server's: {named} came twice, or unasked"
    assert mended.why == [why]
    with pytest.raises(Damaged) as wrong:
        texts(Kept(given))
    assert str(wrong.value) == why
    assert isinstance(wrong.value, BzrError)  # To Breezy's user a line.
