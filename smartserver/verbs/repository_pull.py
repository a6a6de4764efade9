"""`Repository.pull`: get refs, and the revisions that the client lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from smartserver.errors import LimitExceeded, MissingRevision, NoSuchRepository
from smartserver.records.model import RefValue, RevisionId
from smartserver.verbs.declare import Arguments, Body, Context, Effect, Result, verb
from smartserver.verbs.fields import MAX_IDS, Id, RefName

if TYPE_CHECKING:
    from smartserver.store.transaction import Transaction

MAX_HAVES = 256
"""The most haves of a pull (DESIGN 7). Further haves would take more bytes than the revisions that they save."""

MAX_WANTS = 65536
"""The most revisions or objects that one request names."""

MAX_PREFIXES = 256
"""The most prefixes of refs in one pull, because each ref is compared with all of them."""

Haves = Annotated[list[Id], msgspec.Meta(max_length=MAX_HAVES)]
Refs = Annotated[list[RefName], msgspec.Meta(max_length=65536)]
Wants = Annotated[list[Id], msgspec.Meta(max_length=MAX_WANTS)]
Absent = Annotated[list[Id], msgspec.Meta(max_length=MAX_IDS)]


class PullRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`refs`: the refs whose tips the client wants; nil is all refs. Each is an exact name, a prefix that ends in `/`
    or `*`, or the name of a setting that holds a ref's name (`HEAD`). `ids`: further revisions that the client wants.
    `follow`: prefixes of refs that follow the selected refs. The server sends the tip of such a ref, too, if it is an
    annotated tag on a revision that the answer or the client has.

    `haves`: revisions that the client has completely. `absent`: parents of `haves` that the client lacks. `bulk`: true
    to get a bulk stream as the body. `tagged`: true to get the stored revisions that maps of ids name, too. `expanded`:
    true if the server may shorten a bulk stream: it decompresses frames and leaves out repeated records, so that the
    body cannot be stored.
    """

    haves: Haves = []
    refs: Refs | None = None
    ids: Wants = []
    absent: Absent = []
    follow: Annotated[list[RefName], msgspec.Meta(max_length=16)] = []
    bulk: bool = False
    tagged: bool = False
    expanded: bool = False


class PullResult(Result, frozen=True, array_like=True):
    """`segments`: the number of segments in the body. `size`: the bytes of the body, before a bulk stream compresses
    them. `common`: a bit for each have, lowest first, which is set if the server has it.
    """

    segments: int = 0
    size: int = 0
    common: bytes = b""


def tips(transaction: Transaction, patterns: list[bytes] | None) -> list[RevisionId]:
    """Return the tips that patterns select. A pattern without a match is ignored, because the client sees all refs."""
    refs = transaction.refs()
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
    """Return the tips of the refs with any of these prefixes, in one walk over the refs."""
    if not prefixes:
        return []
    if len(prefixes) > MAX_PREFIXES:
        raise LimitExceeded("prefixes of refs in one pull", len(prefixes), MAX_PREFIXES)
    wanted = tuple(prefixes)
    return [tip.id for name, value in refs.items() if name.startswith(wanted) for tip in value]


def _tagged(transaction: Transaction) -> list[RevisionId]:
    """Return the stored revisions that entries of maps name."""
    return [each for name in transaction.maps() for each in transaction.named(name) if transaction.is_stored(each)]


@verb("Repository.pull", effect=Effect.READ, body=Body.DOWN, errors=(LimitExceeded, MissingRevision, NoSuchRepository))
def repository_pull(context: Context, request: PullRequest) -> PullResult:
    """Answer with the changes of the refs, then send the revisions that the wants reach and the haves do not.

    Revisions are sent whole, parents first, in their stored form. If nothing is wanted (`refs` is empty), none are
    sent.
    """
    transaction = context.transaction
    refs = transaction.refs()
    wants = [*tips(transaction, request.refs), *request.ids]
    if request.tagged:
        wants += _tagged(transaction)
    if request.follow:
        wants += transaction.followed(
            _below(refs, [pattern.rstrip(b"*") for pattern in request.follow]),
            [*wants, *request.haves],
        )
    plan = transaction.plan_pull(list(dict.fromkeys(wants)), request.haves, request.absent)
    context.stream(msgspec.structs.replace(plan, bulk=request.bulk, expanded=request.expanded))
    bits = sum(1 << index for index, have in enumerate(plan.common) if have)
    common = bits.to_bytes((len(plan.common) + 7) // 8, "little")
    return PullResult(plan.segments, plan.size, common)
