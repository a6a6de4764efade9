"""One request's work on the store. Everything here blocks, so it runs in the executor, one step at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from smartserver.errors import CorruptRecord
from smartserver.records.model import Announced
from smartserver.records.varint import Malformed
from smartserver.server.advice import faults_of, of_faults
from smartserver.server.asked import Asked
from smartserver.server.dispatch import Refused, decide, fault, internal
from smartserver.server.executor import Lane
from smartserver.server.receiving import Receiving
from smartserver.server.words import in_words
from smartserver.store.index_build import Pace
from smartserver.store.model import ContentPlan
from smartserver.store.repository import Committed, PackRepository
from smartserver.store.transaction import RepositoryTransaction
from smartserver.store.upload import Upload
from smartserver.verbs.declare import Body
from smartserver.wire.messages import Advice, Failure, Outcome, Reply, RequestFlag
from transports.errors import CodedError

log = logging.getLogger("smartserver")

_outcomes = msgspec.msgpack.Decoder(list[Outcome])
_encode = msgspec.msgpack.Encoder().encode


class BodyReader(Protocol):
    """The body of an answer."""

    segments: int
    """In it; right when it has ended, as is `size`."""
    size: int
    """Its bytes."""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send: a message, and a body where there is one."""

    message: Reply | Failure
    body: BodyReader | None = None
    lane: Lane = Lane.QUICK
    """Where the body is read."""
    changed: PackRepository | None = None
    """The repository a swap changed: it may want repacking."""


class RequestWork:
    """The steps of one request: `answer`, or `take` for each chunk of its body and then `finish`. `refusal` makes an
    answer of what goes wrong in them."""

    def __init__(self, asked: Asked) -> None:
        self._prepared = asked.prepared
        self._asked = asked
        self._receiving = Receiving(asked)
        self.take = self._receiving.take

    @property
    def mutates(self) -> bool:
        """Whether it may change something."""
        return self._prepared.mutates

    @property
    def description(self) -> str:
        """The request in short, for a log."""
        return self._prepared.description

    def cancel(self) -> None:
        """Make no change that is not made yet, and read and verify no further; from any thread."""
        self._asked.allowance.cancelled = True

    # -- steps; what they raise is for `refusal`

    def answer(self) -> Answer:
        """Carry out a request that has no body."""
        return self._change() if self._prepared.mutates else self._read()

    def finish(self, segments: int, size: int) -> Answer:
        """Make the change a whole body asks for."""
        asked = self._asked
        asked.allowance()
        if self._prepared.flags & RequestFlag.CHECK_ONLY:
            return self._check(self._receiving.graph())
        first = asked.earlier()
        if first is not None:
            self.abandon()
            return self._committed(first)
        return self._commit(self._receiving.finish(segments, size))

    def abandon(self) -> None:
        """Forget the body: the client cancelled or is gone."""
        self._receiving.abandon()

    # -- reads

    def _read(self) -> Answer:
        asked, prepared = self._asked, self._prepared
        asked.allowance()  # It may have waited for a thread.
        if all(verb.site_wide for verb, _ in prepared.calls):
            return Answer(Reply(decide(prepared, asked.site_wide())))
        transaction = asked.begin()
        context = asked.context(transaction)
        outcomes = decide(prepared, context)
        changes = transaction.changes_since(asked.known) if transaction.exists else None
        snapshot = transaction.snapshot
        reply = asked.reply(outcomes, changes, None if snapshot is None else snapshot.root)
        plan = context.plan
        if plan is None or not plan or not any(verb.body is Body.DOWN for verb, _ in prepared.calls):
            return Answer(reply)
        lane = Lane.CONTENT if isinstance(plan, ContentPlan) else Lane.QUICK
        return Answer(reply, transaction.open_body(plan), lane)

    # -- changes

    def _change(self) -> Answer:
        return self._check(()) if self._prepared.flags & RequestFlag.CHECK_ONLY else self._commit(None)

    def _check(self, graph: Sequence[Announced]) -> Answer:
        asked = self._asked
        transaction = asked.begin(graph)
        outcomes = decide(self._prepared, asked.context(transaction))
        return Answer(asked.reply(outcomes, transaction.changes_since(asked.known) if asked.find().exists else None))

    def _commit(self, upload: Upload | None) -> Answer:
        asked = self._asked

        def plan(transaction: RepositoryTransaction) -> bytes:
            asked.allowance()
            asked.allowance.restart()  # Planned before, on what was stored then.
            return _encode(decide(self._prepared, asked.context(transaction)))

        repository = asked.find().repository
        # From here on the upload is the commit's: once a root may name its pack, nobody else may delete that.
        user = asked.access.user
        committed = repository.commit(asked.id, asked.age(), user, plan, upload, asked.progress, asked.allowance)
        advice = None if upload is None else of_faults(upload.warnings)
        if upload is not None and upload.warnings:
            log.info("%s by %s: taken with faults: %s", self.description, user, faults_of(upload.warnings))
        return self._committed(committed, advice)

    def _committed(self, committed: Committed, advice: Advice | None = None) -> Answer:
        asked, outcomes = self._asked, _outcomes.decode(committed.outcome)
        try:
            gone = committed.view.root.deleted  # By this request, or since it was carried out.
            changes = None if gone else committed.changes_since(asked.known)
            reply = asked.reply(outcomes, changes, None if gone else committed.view.root, advice)
        except CodedError as wrong:
            # The change is made, whatever is damaged beside it: an error would say that it is not.
            log.warning("%s: its change is made, its state cannot be told: %s", self.description, wrong)
            reply = asked.reply(outcomes, None, advice=advice)
        return Answer(reply, changed=asked.find().repository if committed.swapped else None)

    # -- refusals

    def refusal(self, wrong: Exception) -> Answer:
        """What the client is told of what a step raised; a bug is told as one."""
        error: CodedError
        outcomes: list[Outcome] = []
        match wrong:
            case Refused():
                error, outcomes = wrong.fault, wrong.outcomes
            case CodedError():
                error = wrong
            case Malformed():
                error = CorruptRecord(b"", b"", str(wrong))
            case _:
                error = internal(wrong, log_bug)
        self.abandon()
        asked = self._asked
        try:
            error = in_words(error, asked.found, asked.site.name)
        except CodedError as also:  # What it looks at for that cannot be had.
            error = also
        return Answer(Failure(fault(error), outcomes, asked.state_after(error), capabilities=asked.capabilities()))


def tidy(repository: PackRepository, pace: Pace) -> None:
    """Join packs after an answer, and delete what that left a day ago; what goes wrong there is nobody's answer."""
    try:
        repository.tidy(pace)
    except Exception as wrong:  # It runs in a thread whose errors nobody sees.
        log.warning("tidying %s: %s", repository.path, wrong, exc_info=not isinstance(wrong, CodedError))


def log_bug(reference: str, error: Exception) -> None:
    """Keep what a client is told only the reference of."""
    log.error("internal error %s", reference, exc_info=error)
