"""The selectors of `bzr 2a`: what `Repository.read` is asked for, and what its result says besides.

A selector is msgpack: an array that begins with 0 (`History`) or 1 (`Parts`).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from smartserver.errors import Unsupported
from smartserver.records.model import RevisionId
from smartserver.vcs.base import WrongContent

MAX_NAMED: Final = 4096
"""Trees, texts or paths in one selector. The trees of the chosen revisions are not counted."""

MAX_HAD: Final = 16
"""Trees a reader may have: the parents of a working tree are seldom more than two."""

Id = Annotated[bytes, msgspec.Meta(min_length=1, max_length=1024)]
"""A revision's id, or the key of a text."""

Path = Annotated[bytes, msgspec.Meta(max_length=4096)]
"""A path inside a tree, without a slash at either end; empty: the tree's root."""

Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
"""A revision's place in the left-hand history of the first want: 1 is its first revision, -1 the want itself."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]

Named = Id | Number
"""A revision, by id or number."""


class Tag(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The revision that has this tag, an entry of the map `tags` that belongs to the first of the request's refs."""

    name: Annotated[bytes, msgspec.Meta(min_length=1, max_length=1024)]


Called = Named | Tag
"""A revision, by id, number or tag."""


class RevisionsField(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which of the revisions that the wants reach and the haves do not say what they are: the newest `limit` (0: all);
    with `left_hand` along first parents only. `bare`: only their ids and parents.

    `newest`: what this one reaches, instead of the wants. `oldest`: none that its first parent reaches. `merges`: those
    with several parents are not `bare`.

    `ends`: so many that come first, and so many that come last, are not `bare` either. `numbers`: the answer says the
    numbers of all that have tags; nothing comes where each has one and it were `bare`, or where there is no such tag.
    """

    limit: Count = 0
    left_hand: bool = False
    bare: bool = False
    newest: Called | None = None
    oldest: Named | None = None
    merges: bool = False
    ends: Count = 0
    numbers: bool = False


class TreesField(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which trees: of `revisions`, and with `each` those of the chosen revisions and their first parents.

    `paths`: only what lies there in one of these trees, with the folders on the way; `inner`: what the request's path
    leads to inside the branch, too; neither: everything. `texts`: the files' texts, too. `versions`: the earlier texts
    of those files, and the revisions that brought them, too. `changed`: texts only of files that are not the same in a
    tree and the next of `revisions`, or with `each` in its first parent's, all where it is compared with none, and the
    revisions that brought those; nothing of several `revisions` that are all the same. `bringers`: of each file, folder
    and link there the revision that changed it last, too, but for what a whole tree before has on the same page.

    `had`: of these trees, those of them that are here, the reader has all but their inventories: nothing else that one
    of them has comes. `files`: the keys of texts that come besides, where there are such, and the revisions that
    brought those.
    """

    revisions: Annotated[list[Named], msgspec.Meta(max_length=MAX_NAMED)] = []
    each: bool = False
    paths: Annotated[list[Path], msgspec.Meta(max_length=MAX_NAMED)] | None = None
    inner: bool = False
    texts: bool = True
    versions: bool = False
    changed: bool = False
    had: Annotated[list[Id], msgspec.Meta(max_length=MAX_HAD)] = []
    files: Annotated[list[Id], msgspec.Meta(max_length=MAX_NAMED)] = []
    bringers: bool = False


class History(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """What one revision reaches, whole."""

    newest: Called


class Parts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Revisions and trees; neither: all revisions. `inside`: both, instead, where the request's path leads into a
    branch: a URL does not say where it ends.
    """

    chosen: RevisionsField | None = None
    trees: TreesField | None = None
    inside: tuple[RevisionsField | None, TreesField | None] | None = None


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """`ids`: of `TreesField.revisions`, or of the revision whose history was asked for. `numbers`: of the revision of
    each tag of the first ref, in the order of the tags' names; 0 where its number cannot be counted along first
    parents.
    """

    ids: list[RevisionId] = []
    numbers: list[Annotated[int, msgspec.Meta(ge=0)]] = []


encode = msgspec.msgpack.Encoder().encode
_said: Final = msgspec.msgpack.Decoder(ReadAnswer)
_selectors: Final[msgspec.msgpack.Decoder[History | Parts]] = msgspec.msgpack.Decoder(History | Parts)


def decode_selector(selector: bytes) -> History | Parts:
    """What a client asks.

    Raises:
        Unsupported: it is no selector of this release's.
    """
    try:
        return _selectors.decode(selector)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as wrong:
        raise Unsupported("this selector of bzr 2a", str(wrong)) from None


def decode_answer(said: bytes) -> ReadAnswer:
    """What a server says of the parts it sends.

    Raises:
        WrongContent: it cannot be read.
    """
    try:
        return _said.decode(said) if said else ReadAnswer()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as wrong:
        raise WrongContent(b"", f"what the server says of it: {wrong}") from None
