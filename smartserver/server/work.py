"""One request's work on the store. Everything here blocks, so it runs in the executor, one step at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import msgspec

from smartserver.errors import Cancelled, CorruptRecord, LimitExceeded, NoSuchRepository, Unsupported
from smartserver.records.model import Announced, Kind, encode_ref
from smartserver.records.segment import SegmentStream
from smartserver.records.varint import Malformed
from smartserver.server.access import Access
from smartserver.server.dispatch import CallContext, NoRepository, Prepared, Refused, decide, declared, fault, internal
from smartserver.server.site import Found, Site
from smartserver.server.words import in_words
from smartserver.store.incoming import Upload
from smartserver.store.model import Changes, Transaction
from smartserver.store.repository import Committed, PackRepository
from smartserver.store.transaction import RepositoryTransaction
from smartserver.verbs.declare import Body, Permission
from smartserver.wire.messages import Failure, Outcome, Reply, RequestFlag, State
from transports.errors import CodedError

log = logging.getLogger("smartserver")

_outcomes = msgspec.msgpack.Decoder(list[Outcome])
_encode = msgspec.msgpack.Encoder().encode


class BodyReader(Protocol):
    """The segments of a pull's answer."""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send: a message, and a body of `segments` and `size` bytes where there is one."""

    message: Reply | Failure
    body: BodyReader | None = None
    segments: int = 0
    size: int = 0
    changed: PackRepository | None = None
    """The repository a swap changed: it may want repacking."""


def state_of(changes: Changes) -> State:
    """A repository's root, or what changed of it, as it travels."""
    return State(
        incarnation=changes.incarnation,
        version=changes.version,
        since=changes.since,
        refs={name: None if value is None else encode_ref(value) for name, value in changes.refs.items()},
        maps={name: dict(entries) for name, entries in changes.maps.items()},
        vcs=changes.vcs,
        settings=dict(changes.settings),
    )


class RequestWork:
    """The steps of one request: `answer`, or `take` for each chunk of its body and then `finish`."""

    def __init__(
        self, site: Site, access: Access, prepared: Prepared, progress: Callable[[str, int, int], None]
    ) -> None:
        self._site = site
        self._access = access
        self._prepared = prepared
        self._progress = progress
        self._found: Found | None = None
        self._upload: Upload | None = None
        self._announcement: SegmentStream | None = None
        self._planned = False
        self._repeated: Committed | None = None
        self._arrived = site.clock() if prepared.message.age else 0.0
        self.cancelled = False
        """Set by the session when the client wants no more; looked at before the change is made."""

    @property
    def description(self) -> str:
        """The request in short, for a log."""
        verbs = [verb.name for verb, _ in self._prepared.calls]
        shown = ", ".join(verbs[:3]) + (f" and {len(verbs) - 3} more" if len(verbs) > 3 else "")
        return f"{shown} on {self._prepared.message.path!r}"

    # -- steps

    def answer(self) -> Answer:
        """Carry out a request that has no body."""
        return self._guarded(self._change if self._prepared.mutates else self._read)

    def take(self, chunk: bytes) -> Answer | None:
        """Check a chunk of the body; an answer is a refusal, and the rest of the body is not wanted."""
        try:
            return self._take(chunk)
        except Exception as wrong:  # The boundary of a request: nothing a peer sends may end the server.
            return self._guarded(_raiser(wrong))

    def finish(self, segments: int, size: int) -> Answer:
        """Make the change a whole body asks for."""
        return self._guarded(lambda: self._finish(segments, size))

    def abandon(self) -> None:
        """Forget the body: the client cancelled or is gone."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abandon()

    # -- reads

    def _read(self) -> Answer:
        prepared = self._prepared
        if all(verb.site_wide for verb, _ in prepared.calls):
            context = CallContext(
                cast("Transaction", NoRepository(prepared.message.path)),
                self._access,
                self._site.facts,
                prepared.message.path,
                "",
            )
            return Answer(Reply(decide(prepared, context)))
        found = self._find()
        transaction = found.repository.begin(prepared.message.id, self._access.user, ())
        context = self._context(found, transaction)
        outcomes = decide(prepared, context)
        state = state_of(transaction.changes_since(self._known())) if transaction.exists else None
        reply = Reply(outcomes, state, capabilities=self._capabilities())
        if not any(verb.body is Body.DOWN for verb, _ in prepared.calls) or context.plan is None:
            return Answer(reply)
        plan = context.plan
        if not plan.segments:
            return Answer(reply)
        return Answer(reply, transaction.open_body(plan), plan.segments, plan.size)

    # -- changes

    def _change(self) -> Answer:
        found = self._find()
        if self._prepared.flags & RequestFlag.CHECK_ONLY:
            return self._check(())
        return self._commit(found, None)

    def _take(self, chunk: bytes) -> Answer | None:
        prepared = self._prepared
        if prepared.flags & RequestFlag.CHECK_ONLY:
            if self._announcement is None:
                self._admit()
                self._announcement = SegmentStream(self._kinds(), graph_first=True, limit=0)
            self._announcement.feed(chunk)
            if any(self._announcement.segments()):
                raise CorruptRecord(b"", b"", "a check brings the graph of its revisions and nothing else")
            return None
        if self._upload is None:
            if self._earlier() is not None:
                return None
            self._upload = self._begin_upload()
        self._upload.write(chunk)
        if prepared.flags & RequestFlag.GRAPH_FIRST and not self._planned:
            graph = self._upload.graph()
            if graph is not None:
                self._planned = True
                found = self._find()
                transaction = found.repository.begin(prepared.message.id, self._access.user, graph)
                decide(prepared, self._context(found, transaction, early=True))
        return None

    def _admit(self) -> None:
        """Check what every call needs, before anything of a body is kept.

        Raises:
            AccessDenied: the user may not.
        """
        for verb, _ in self._prepared.calls:
            self._access.require(verb.permission)

    def _begin_upload(self) -> Upload:
        """A place for the body. What comes before it in the request (creation) decides which kinds it may hold."""
        prepared = self._prepared
        self._admit()
        found = self._find()
        transaction = found.repository.begin(prepared.message.id, self._access.user, ())
        context = self._context(found, transaction, early=True)
        for verb, arguments in prepared.calls:
            if verb.body is Body.UP:
                break
            try:
                verb.function(context, arguments)
            except CodedError as error:
                checked = declared(verb, error)
                if not verb.own_verdict:
                    raise Refused(checked) from error
        if not transaction.exists:
            raise Refused(NoSuchRepository(prepared.message.path))
        graph_first = bool(prepared.flags & RequestFlag.GRAPH_FIRST)
        return found.repository.receive(transaction, graph_first, prepared.message.id)

    def _kinds(self) -> Sequence[Kind]:
        found = self._find()
        return found.repository.begin(self._prepared.message.id, self._access.user, ()).kinds if found.exists else ()

    def _finish(self, segments: int, size: int) -> Answer:
        if self.cancelled:
            raise Refused(Cancelled())
        if self._prepared.flags & RequestFlag.CHECK_ONLY:
            if self._announcement is None:
                raise Unsupported("a check without the graph it is about", "the graph in the body")
            self._announcement.finish()
            return self._check(self._announcement.graph() or ())
        first = self._earlier()
        if first is not None:
            return self._committed(self._find(), first)
        upload = self._upload or self._begin_upload()
        self._upload = upload
        upload.finish(segments, size)
        return self._commit(self._find(), upload)

    def _check(self, graph: Sequence[Announced]) -> Answer:
        found = self._find()
        transaction = found.repository.begin(self._prepared.message.id, self._access.user, graph)
        outcomes = decide(self._prepared, self._context(found, transaction))
        state = state_of(transaction.changes_since(self._known())) if found.exists else None
        return Answer(Reply(outcomes, state, capabilities=self._capabilities()))

    def _commit(self, found: Found, upload: Upload | None) -> Answer:
        message = self._prepared.message

        def plan(transaction: RepositoryTransaction) -> bytes:
            if self.cancelled:
                raise Refused(Cancelled())
            return _encode(decide(self._prepared, self._context(found, transaction)))

        # From here on the upload is the commit's: once a root may name its pack, nobody else may delete that.
        self._upload = None
        committed = found.repository.commit(message.id, self._age(), self._access.user, plan, upload)
        return self._committed(found, committed)

    def _age(self) -> int:
        """Milliseconds since the first sending: what the client said when this one began, and the time since."""
        age = self._prepared.message.age
        return age + int((self._site.clock() - self._arrived) * 1000) if age else 0

    def _earlier(self) -> Committed | None:
        """What became of this request if it is repeated and was carried out before."""
        if self._repeated is None and self._prepared.message.age:
            self._repeated = self._find().repository.earlier(self._prepared.message.id, self._age())
        return self._repeated

    def _committed(self, found: Found, committed: Committed) -> Answer:
        state = state_of(committed.changes_since(self._known()))
        reply = Reply(_outcomes.decode(committed.outcome), state, capabilities=self._capabilities())
        return Answer(reply, changed=found.repository if committed.swapped else None)

    # -- shared

    def _find(self) -> Found:
        if self._found is None:
            self._access.require(Permission.READ)  # Whoever may not read is not told what there is.
            path = self._prepared.message.path
            above = all(verb.finds_above for verb, _ in self._prepared.calls)
            self._found = self._site.find_above(path) if above else self._site.find(path)
        return self._found

    def _context(self, found: Found, transaction: Transaction, *, early: bool = False) -> CallContext:
        return CallContext(
            transaction,
            self._access,
            self._site.facts,
            self._prepared.message.path,
            found.at,
            early=early,
            may_create=self._site.may_create,
            verify=lambda: found.repository.verify(lambda done, total: self._progress("verify", done, total)),
        )

    def _known(self) -> tuple[bytes, int] | None:
        known = self._prepared.message.known
        return None if known is None else (known.incarnation, known.version)

    def _capabilities(self) -> list[str]:
        """Sent to whoever seems not to have met this repository yet."""
        return [] if self._prepared.message.known is not None else list(self._site.facts.capabilities)

    def _guarded(self, step: Callable[[], Answer]) -> Answer:
        """The answer of a step, or the refusal it ended in."""
        try:
            return step()
        except Refused as refused:
            error, outcomes = refused.fault, refused.outcomes
        except CodedError as wrong:
            error, outcomes = wrong, []
        except Malformed as wrong:
            error, outcomes = CorruptRecord(b"", b"", str(wrong)), []
        except Exception as wrong:  # The boundary of a request: a bug must not end the server.
            error, outcomes = internal(wrong, log_bug), []
        self.abandon()
        error = self.in_words(error)
        return Answer(Failure(fault(error), outcomes, self._state_after(error), capabilities=self._capabilities()))

    def in_words(self, error: CodedError) -> CodedError:
        """An error of the store as it is sent."""
        return in_words(error, self._found)

    def _state_after(self, error: CodedError) -> State | None:
        """What a refused client needs to plan again; nothing where it may not read."""
        if self._found is None or not self._found.exists or isinstance(error, LimitExceeded):
            return None
        try:
            self._access.require(Permission.READ)
            transaction = self._found.repository.begin(self._prepared.message.id, self._access.user, ())
            return state_of(transaction.changes_since(self._known())) if transaction.exists else None
        except CodedError:
            return None


def tidy(repository: PackRepository) -> None:
    """Join packs after an answer, and delete what that left a day ago; what goes wrong there is nobody's answer."""
    try:
        if repository.repack_if_needed():
            repository.collect_garbage_files()
    except Exception as wrong:  # It runs in a thread whose errors nobody sees.
        log.warning("tidying %s: %s", repository.path, wrong, exc_info=not isinstance(wrong, CodedError))


def log_bug(reference: str, error: Exception) -> None:
    """Keep what a client is told only the reference of."""
    log.error("internal error %s", reference, exc_info=error)


def _raiser(wrong: Exception) -> Callable[[], Answer]:
    def step() -> Answer:
        raise wrong

    return step
