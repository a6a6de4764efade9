"""`Repository.pull`: refs, and what the client lacks: revisions, or what revisions say of themselves, or trees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from smartserver.errors import (
    LimitExceeded,
    MissingRevision,
    NoSuchRepository,
    NoSuchRevisionNumber,
    NoSuchTag,
    Unsupported,
)
from smartserver.records.model import RefValue, RevisionId
from smartserver.store.model import Trees, What
from smartserver.verbs.declare import Arguments, Body, Context, Effect, Result, verb
from smartserver.verbs.fields import MAX_IDS, MAX_NAME, Id, RefName

if TYPE_CHECKING:
    from smartserver.store.transaction import RepositoryTransaction

MAX_HAVES = 256
"""DESIGN 7; more cost more bytes than the revisions they save."""

MAX_PREFIXES = 256
"""Prefixes of refs in one pull: each ref is compared with all of them."""

MAX_TREES = 4096
"""Trees in one pull by name: as many as ids elsewhere. Those of the chosen revisions are not counted."""

MAX_HAD = 16
"""Trees a reader may have: the parents of a working tree are seldom more than two."""

TAGS = "tags"
"""The map in which a client keeps what its user calls tags."""

Path = Annotated[bytes, msgspec.Meta(max_length=4096, examples=[b"doc/index.txt"])]
"""A path inside a tree, without a slash at either end; empty: the tree's root."""

Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53, examples=[-1])]
"""A revision's place in the left-hand history of the first want: 1 is its first revision, -1 the want itself."""

MAX_DIGITS = 15
"""Of a tip's number in its attributes, which are the client's; more are none."""

Named = Id | Number
"""A revision, by id or number."""


class ChosenField(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which of the revisions that the wants reach and the haves do not say what they are: the newest `limit` (0: all);
    with `left_hand` along first parents only. `bare`: only their ids and parents.

    `newest`: what this one reaches, instead of the wants. `oldest`: none that its first parent reaches. `merges`: those
    with several parents are not `bare`. `tag`: as `newest`, the revision that has this tag, an entry of the map `tags`
    that belongs to the first of `refs`.

    `ends`: so many that come first, and so many that come last, are not `bare` either. `numbers`: the answer says the
    numbers of all that have tags; nothing comes where each has one and it were `bare`, or where there is no such `tag`.
    """

    limit: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    left_hand: bool = False
    bare: bool = False
    newest: Named | None = None
    oldest: Named | None = None
    merges: bool = False
    tag: Annotated[bytes, msgspec.Meta(max_length=MAX_NAME)] = b""
    ends: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    numbers: bool = False


class TreesField(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
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

    revisions: Annotated[list[Named], msgspec.Meta(max_length=MAX_TREES)] = []
    each: bool = False
    paths: Annotated[list[Path], msgspec.Meta(max_length=MAX_IDS)] | None = None
    inner: bool = False
    texts: bool = True
    versions: bool = False
    changed: bool = False
    had: Annotated[list[Id], msgspec.Meta(max_length=MAX_HAD)] = []
    files: Annotated[list[Id], msgspec.Meta(max_length=MAX_IDS)] = []
    bringers: bool = False


class InsideField(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is asked instead where the request's path leads into a branch: a URL does not say where it ends."""

    chosen: ChosenField | None = None
    trees: TreesField | None = None


class PullRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`refs`: whose tips are wanted: exact names, prefixes that end in `/` or `*`, or the name of a setting that holds
    a ref's name (`HEAD`); None: all. `ids` are wanted besides. `follow`: refs under these prefixes are wanted too if
    what they point at comes anyway or is had, or is a label on that (annotated tags).

    `haves`: revisions the client has complete. `absent`: parents of them that it lacks. `chosen` may
    go with `what` = `revisions` and `tree`, and with `history` if it says `newest` or `tag` alone; `trees` goes with
    `tree`, always; `inside` may take the place of both. `bulk`: the body of `history` is a bulk stream, too.
    """

    what: What = What.HISTORY
    haves: Annotated[list[Id], msgspec.Meta(max_length=MAX_HAVES)] = []
    refs: Annotated[list[RefName], msgspec.Meta(max_length=65536)] | None = None
    ids: Annotated[list[Id], msgspec.Meta(max_length=65536)] = []
    absent: Annotated[list[Id], msgspec.Meta(max_length=MAX_IDS)] = []
    follow: Annotated[list[RefName], msgspec.Meta(max_length=16)] = []
    chosen: ChosenField | None = None
    trees: TreesField | None = None
    bulk: bool = False
    inside: InsideField | None = None


class PullResult(Result, frozen=True, array_like=True):
    """`segments` and `size` of the body of whole revisions (bytes, before a bulk stream made fewer of them);
    `common`: a bit for each have, lowest first, that is here. `trees`: the ids of `TreesField.revisions`. `newest`:
    that of `ChosenField.newest` or of the tag, where whole revisions were asked for. `numbers`: of the revision of each
    tag of the first ref, in the order of the tags' names; 0 where its number cannot be counted along first parents.
    """

    segments: int = 0
    size: int = 0
    common: bytes = b""
    trees: list[bytes] = []
    newest: bytes = b""
    numbers: list[Annotated[int, msgspec.Meta(ge=0)]] = []


def _wanted(
    transaction: RepositoryTransaction, refs: Mapping[bytes, RefValue], patterns: list[bytes] | None
) -> list[RevisionId]:
    """The tips that patterns name; one that names nothing is left to the client, which sees all refs."""
    if patterns is None:
        return [tip.id for value in refs.values() for tip in value]
    wanted: list[RevisionId] = []
    prefixes: list[bytes] = []
    for pattern in patterns:
        exact = transaction.ref(pattern)  # First, as the name of a branch may be that of a setting.
        if exact is None and (named := transaction.settings.get(pattern.decode("ascii", "replace"))):
            exact = transaction.ref(named)
        if exact is not None:
            wanted += [tip.id for tip in exact]
        elif pattern.endswith((b"/", b"*")):
            prefixes.append(pattern.rstrip(b"*"))
    return wanted + _below(refs, prefixes)


def _below(refs: Mapping[bytes, RefValue], prefixes: Sequence[bytes]) -> list[RevisionId]:
    """The tips of the refs under any of these prefixes: one walk, however many there are."""
    if not prefixes:
        return []
    if len(prefixes) > MAX_PREFIXES:
        raise LimitExceeded("prefixes of refs in one pull", len(prefixes), MAX_PREFIXES)
    wanted = tuple(prefixes)
    return [tip.id for name, value in refs.items() if name.startswith(wanted) for tip in value]


def _content(context: Context, request: PullRequest, wants: Sequence[RevisionId]) -> PullResult:
    """Plan the answer to a pull of less than whole revisions."""
    transaction, chosen, asked = context.transaction, request.chosen, request.trees
    transaction.check_content()
    numbered = _Numbered(transaction, wants)
    named = numbered.revision
    numbers: list[int] = []
    trees = Trees()
    if asked is not None:
        paths = asked.paths
        if asked.inner:
            paths = [*(paths or ()), context.inner.encode()]
        trees = Trees(
            tuple(map(named, asked.revisions)),
            asked.each,
            None if paths is None else tuple(paths),
            asked.texts,
            asked.versions,
            asked.changed,
            tuple(asked.had),
            tuple(asked.files),
            asked.bringers,
        )
    elif chosen is None:
        chosen = ChosenField()
    if chosen is None:  # The wants only say from where revisions are numbered.
        plan = transaction.plan_content([], trees=trees)
    else:
        if chosen.numbers:
            numbers = numbered.numbers(_tagged(transaction, request.refs))
        is_told = chosen.numbers and chosen.bare and all(numbers)
        oldest = None if chosen.oldest is None else transaction.left_hand(named(chosen.oldest), 1)
        plan = transaction.plan_content(
            [] if is_told else _heads(transaction, request.refs, chosen, wants, named),
            request.haves if oldest is None else [*request.haves, oldest],
            request.absent,
            chosen.limit,
            left_hand=chosen.left_hand,
            bare=chosen.bare,
            merges=chosen.merges,
            ends=chosen.ends,
            trees=trees,
        )
    context.stream(plan)
    return PullResult(trees=list(trees.of), numbers=numbers)


def _tagged(transaction: RepositoryTransaction, refs: Sequence[bytes] | None) -> list[RevisionId]:
    """What the tags of the first ref name, in the order of their names."""
    if not refs:
        return []
    before = refs[0] + b"\0"
    tags = transaction.map(TAGS)
    return [tags[name] for name in sorted(name for name in tags if name.startswith(before))]


def _heads(
    transaction: RepositoryTransaction,
    refs: Sequence[bytes] | None,
    chosen: ChosenField,
    wants: Sequence[RevisionId],
    named: Callable[[RevisionId | int], RevisionId],
) -> Sequence[RevisionId]:
    """The wants, or the one revision that is asked for instead."""
    if not chosen.tag:
        return wants if chosen.newest is None else [named(chosen.newest)]
    tagged = transaction.entry(TAGS, refs[0] + b"\0" + chosen.tag) if refs else None
    if tagged is None and chosen.numbers:
        return []
    if tagged is None:
        raise NoSuchTag(chosen.tag)
    return [tagged]


class _Numbered:
    """What numbers name: places in the left-hand history of the first want, whose own is looked up once."""

    def __init__(self, transaction: RepositoryTransaction, wants: Sequence[RevisionId]) -> None:
        self._transaction = transaction
        self._wants = wants

    def revision(self, named: RevisionId | int) -> RevisionId:
        """A revision's id, by id or number."""
        if not isinstance(named, int):
            return named
        if self._wants and named:
            steps = self._last - named if named > 0 else -named - 1
            found = self._transaction.left_hand(self._wants[0], steps) if steps >= 0 else None
            if found is not None:
                return found
        raise NoSuchRevisionNumber(named)

    def numbers(self, revisions: Sequence[RevisionId]) -> list[int]:
        """The numbers of some revisions; 0 for what is not in the line, or is below a number that cannot be."""
        if not self._wants:
            return [0] * len(revisions)
        steps = self._transaction.left_hand_steps(self._wants[0], set(revisions))
        return [max(0, self._last - steps.get(revision, self._last)) for revision in revisions]

    @functools.cached_property
    def _last(self) -> int:
        """The want's: what the attributes of a ref say of it, since history may go on below a ghost; else counted."""
        tip = self._wants[0]
        for value in self._transaction.refs().values():
            for each in value:
                if each.id == tip and each.attributes.isdigit() and len(each.attributes) <= MAX_DIGITS:
                    return int(each.attributes)
        return self._transaction.left_hand_length(tip)


def _check(request: PullRequest) -> None:
    """Refuse arguments that do not go together."""
    what = request.what
    less = what in (What.REVISIONS, What.TREE)
    if (what is What.TREE) != (request.trees is not None):
        has = "without" if what is What.TREE else "with"
        raise Unsupported(f"a pull of {what} {has} trees", "`trees` with `tree`, always")
    if request.inside is not None and not less:
        raise Unsupported(f"a pull of {what} from inside a branch", "`inside` with `revisions` and `tree`")
    chosen = request.chosen
    for each in (chosen, request.inside.chosen if request.inside is not None else None):
        if each is not None and each.tag and each.newest is not None:
            raise Unsupported("a pull with a newest revision and a tag", "one of them")
    one = chosen is not None and chosen == ChosenField(newest=chosen.newest, tag=chosen.tag) != ChosenField()
    if chosen is not None and not less and not (one and what is What.HISTORY):
        raise Unsupported(
            f"a pull of {what} with revisions chosen", "`chosen` with `revisions` and `tree`, one of `history`"
        )
    if request.bulk and less:
        raise Unsupported(f"a pull of {what} with `bulk`", "`bulk` with `history`: these are bulk streams anyway")


@verb(
    "Repository.pull",
    effect=Effect.READ,
    body=Body.DOWN,
    errors=(LimitExceeded, MissingRevision, NoSuchRepository, NoSuchRevisionNumber, NoSuchTag, Unsupported),
)
def repository_pull(context: Context, request: PullRequest) -> PullResult:
    """Answer what changed of the refs, then send what the client lacks.

    `history`: the revisions that the wants reach and the haves do not, whole, parents first, as they lie on disk.
    `revisions`: only what those say of themselves, newest first. `tree`: trees or parts of them, without history. The
    bodies of the last two are bulk streams; with `bulk` so is that of the first. With `refs` nothing follows.
    """
    transaction = context.transaction
    refs = transaction.refs()
    _check(request)
    if request.what is What.REFS:
        return PullResult()
    wants = [*_wanted(transaction, refs, request.refs), *request.ids]
    if request.follow:
        wants += transaction.followed(
            _below(refs, [pattern.rstrip(b"*") for pattern in request.follow]),
            [*wants, *request.haves],
        )
    wants = list(dict.fromkeys(wants))
    if request.what is not What.HISTORY:
        if request.inside is not None and context.inner:
            chosen, trees = request.inside.chosen, request.inside.trees
            request = msgspec.structs.replace(request, chosen=chosen, trees=trees)
        return _content(context, request, wants)
    heads: Sequence[RevisionId] = wants
    newest = b""
    if request.chosen is not None:
        (newest,) = heads = _heads(
            transaction, request.refs, request.chosen, wants, _Numbered(transaction, wants).revision
        )
    plan = transaction.plan_pull(heads, request.haves, request.absent)
    context.stream(msgspec.structs.replace(plan, bulk=request.bulk))
    bits = sum(1 << index for index, have in enumerate(plan.common) if have)
    common = bits.to_bytes((len(plan.common) + 7) // 8, "little")
    return PullResult(plan.segments, plan.size, common, newest=newest)
