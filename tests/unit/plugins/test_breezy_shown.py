"""plugins.breezy.shown, plugins.breezy.shadow: what is damage of a shadow, and what a mistake of this program."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from breezy.errors import BzrError, NotWriteLocked, ObjectNotLocked, ShortReadvError

from smartserver.plugins.breezy.shadow import LONGEST, Damaged, decoding
from smartserver.plugins.breezy.shown import ShadowTexts
from smartserver.vcs.base import WrongContent
from smartserver.vcs.bzr.compat import ChunkedContentFactory, StoreKey


def says(error: Exception) -> Callable[[], object]:
    def read() -> object:
        raise error

    return read


@pytest.mark.parametrize(
    "read",
    [
        says(BzrError("damaged")),
        says(ShortReadvError("pack", 1, 2, 3)),
        says(WrongContent(b"key", "its sha1 is another")),
        says(OSError(errno.EIO, "it cannot be read")),
        lambda: zlib.decompress(b"no zlib"),
        lambda: struct.unpack("<Q", b"short"),
        says(KeyError("key")),
    ],
)
def test_damage(read: Callable[[], object]) -> None:
    with pytest.raises(Damaged) as wrong, decoding():
        read()
    assert wrong.value.__cause__ is not None
    assert str(wrong.value) == (str(wrong.value.__cause__) or type(wrong.value.__cause__).__name__)


def test_what_is_said_of_damage_is_one_line() -> None:
    with pytest.raises(Damaged) as wrong, decoding():
        raise ValueError("two\nlines " + "x" * LONGEST)
    assert str(wrong.value).startswith("two lines xxx")
    assert len(str(wrong.value)) == LONGEST


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("a mistake"),
        AttributeError("a mistake"),
        TypeError("a mistake"),
        NotWriteLocked(object()),
        ObjectNotLocked(object()),
        Damaged("a page is missing"),
    ],
)
def test_what_is_always_a_mistake_and_what_is_said_to_be_damage_already(error: Exception) -> None:
    with pytest.raises(type(error)) as wrong, decoding():  # Whoever raises it, Breezy too.
        raise error
    assert wrong.value is error


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
    store = ShadowTexts("texts", kept)  # type: ignore[arg-type]
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
