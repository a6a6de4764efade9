"""`RepositoryExchange`: requests to one repository on a server, and the knowledge about it. A pull is a single
request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import msgspec

from smartserver import spans
from smartserver.client.body import OnSent, unpacked
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.request import Answer, BodySource, Outgoing, Refusal
from smartserver.errors import OutcomeUnknown, WrongVcs
from smartserver.records.model import HERE, GraphNode, Kind, RevisionId
from smartserver.records.segment import SegmentStream, decode_segment
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.verbs.declare import AnyVerb, Arguments, RequestT, ResultT, Verb
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.repository_pull import PullRequest, PullResult, repository_pull
from smartserver.verbs.repository_read import ReadRequest, ReadResult, repository_read
from smartserver.verbs.repository_stats import StatsRequest, StatsResult, repository_stats
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import Advice, RequestFlag, State
from transports.errors import CodedError


class PullAnswer(msgspec.Struct, frozen=True):
    """The answer to a pull. Its state is stored in the knowledge; the body is received as it is read."""

    result: PullResult
    body: Iterator[bytes]
    stats: StatsResult | None = None

    def common(self, haves: Sequence[RevisionId]) -> list[RevisionId]:
        """Return those revisions of `haves`, the haves of the request, that the server has too."""
        common = int.from_bytes(self.result.common, "little")
        return [have for at, have in enumerate(haves) if common >> at & 1]


class ReadAnswer(msgspec.Struct, frozen=True):
    """The answer to a read. Its state is stored in the knowledge; the body is received as `graph` or `segments` is
    read."""

    result: ReadResult
    body: Iterator[bytes]
    kinds: Sequence[Kind]

    @property
    def graph(self) -> Iterator[GraphNode]:
        """The revisions of a body without records, with their parents."""
        return read_graph(self.body, self.kinds)

    @property
    def segments(self) -> Iterator[bytes]:
        """The segments of a body of whole revisions."""
        return unpacked(self.body)


def read_graph(body: Iterable[bytes], kinds: Sequence[Kind]) -> Iterator[GraphNode]:
    """Yield the revisions and parents in a body of segments without records, as they arrive."""
    stream = SegmentStream(graph_first=False)
    try:
        for text in unpacked(iter(body)):
            stream.feed(text)
            for whole in stream.segments():
                segment = decode_segment(whole, 0, kinds)
                if segment.entries:
                    raise ValueError(f"{len(segment.entries)} records")
                yield GraphNode(segment.revision, segment.parents)
        stream.finish()
    except (Malformed, ValueError) as error:
        raise RemoteProtocolError(f"expected ids and parents, got something else: {error}") from error


class RepositoryExchange:
    """Requests to one repository on a server, and the knowledge from their answers.

    Raises:
        CodedError: the server refused the request.
        OutcomeUnknown: as in `Client.request`.
        MediumError, RemoteProtocolError, NotOurProtocol: there was no answer, and no change was made.
    """

    def __init__(self, client: Client, path: str, knowledge: Knowledge, *, below: bool = False) -> None:
        """`below`: True if the path may lead below a repository, to a branch or to a file in a branch. The ref `.` is
        then that branch."""
        self.knowledge = knowledge
        self._client = client
        self._path = path
        self.below = below
        self.advised: Callable[[Sequence[Advice]], None] = lambda advice: None
        """A function that is called with the server's messages for the user, if there are any."""
        self.sent: OnSent = lambda size, done, total: None
        """A function that is called with the progress while the body of a push is sent."""

    # -- pull

    def learn_refs(self, *, stats: bool = False) -> StatsResult | None:
        """Ask for the refs and store them in `knowledge`. With `stats`, also ask for the repository's statistics and
        return them."""
        return self._pull(PullRequest(refs=[]), stats=stats).stats

    def pull(
        self,
        haves: Sequence[RevisionId] = (),
        refs: Sequence[bytes] | None = None,
        ids: Sequence[RevisionId] = (),
        follow: Sequence[bytes] = (),
        absent: Sequence[RevisionId] = (),
        *,
        bulk: bool = False,
        tagged: bool = False,
        expanded: bool = False,
        stats: bool = False,
    ) -> PullAnswer:
        """Learn the refs and receive the revisions that `refs` and `ids` reach and `haves` do not.

        The other arguments are those of `Repository.pull`; `stats` also asks for the repository's statistics. The body
        of the result yields plain segments, even from a bulk stream. Reading a damaged body raises `Malformed`.
        """
        wanted = None if refs is None else list(refs)
        arguments = list(haves), wanted, list(ids), list(absent), list(follow), bulk, tagged, expanded
        pulled = self._pull(PullRequest(*arguments), stats=stats)
        return PullAnswer(pulled.result, unpacked(pulled.body), pulled.stats) if bulk else pulled

    def read(
        self,
        selector: bytes,
        refs: Sequence[bytes] | None = (HERE,),
        ids: Sequence[RevisionId] = (),
        haves: Sequence[RevisionId] = (),
    ) -> ReadAnswer:
        """Receive the refs and the content that a selector selects. The arguments are those of `Repository.read`."""
        wanted = None if refs is None else list(refs)
        request = ReadRequest(selector, list(haves), wanted, list(ids))
        result, _, body = self._receive(repository_read, request)
        vcs = self.knowledge.vcs
        return ReadAnswer(result, body, system_of(vcs).kinds if vcs else ())

    def _pull(self, request: PullRequest, *, stats: bool = False) -> PullAnswer:
        result, counted, body = self._receive(repository_pull, request, stats=stats)
        return PullAnswer(result, body, counted)

    def _receive(
        self, verb: Verb[RequestT, ResultT], request: RequestT, *, stats: bool = False
    ) -> tuple[ResultT, StatsResult | None, Iterator[bytes]]:
        before: list[tuple[AnyVerb, Arguments]] = [(repository_stats, StatsRequest())] if stats else []
        answer = self.ask(*before, (verb, cast("Arguments", request)))
        result = answer.results[-1]
        if isinstance(result, CodedError):
            raise result
        counted = next((other for other in answer.results if isinstance(other, StatsResult)), None)
        return cast("ResultT", result), counted, answer.body

    # -- any calls

    def ask(self, *calls: tuple[AnyVerb, Arguments]) -> Answer:
        """Make calls on this repository in one request, and store the state in the answer as knowledge."""
        try:
            answer = self.exchange(self.outgoing(list(calls)))
        except Refusal as refusal:
            raise refusal.error from None
        return msgspec.structs.replace(answer, results=answer.results[-len(calls) :])

    # -- the parts of a push

    def outgoing(
        self,
        calls: list[tuple[AnyVerb, Arguments]],
        flags: RequestFlag = RequestFlag.NONE,
        body: BodySource | None = None,
        at: int = 0,
        options: Sequence[str] = (),
    ) -> Outgoing:
        """Return a request with the given calls. If the server must be asked where the repository is, that call is
        inserted at index `at`."""
        if self.below:
            calls.insert(at, (repository_open, OpenRequest()))
            flags |= RequestFlag.BELOW
        return Outgoing(self._path, calls, flags, self.knowledge.known, body, options)

    def exchange(self, outgoing: Outgoing) -> Answer:
        """Send a request, and store the state in the answer or the refusal as knowledge.

        Raises:
            Refusal: the server changed nothing.
        """
        try:
            answer = self._client.request(outgoing)
        except Refusal as refusal:
            self._learn_refusal(refusal)
            raise
        self._learn_of(outgoing, answer)
        return answer

    def name_of(self, ref: bytes) -> bytes | None:
        """Return the repository's name of a ref, which a request may call `.`; None if the name is unknown."""
        return self.knowledge.named if self.below and ref == HERE else ref

    # -- knowledge

    def _learn_of(self, outgoing: Outgoing, answer: Answer) -> None:
        if answer.state is None:
            return
        opened = next((result for result in answer.results if isinstance(result, OpenResult)), None)
        try:
            with spans.span(spans.Part.LOCAL, "remember"):
                self.knowledge.learn(answer.state, answer.capabilities, opened)
        except RemoteProtocolError as error:
            if not outgoing.mutates:
                raise
            # The rest of such an answer is not to be trusted either.
            raise OutcomeUnknown(str(error)) from error
        if answer.advice:
            self.advised(answer.advice)

    def _learn_refusal(self, refusal: Refusal) -> None:
        state: State | None = refusal.state
        if state is not None and not isinstance(refusal.error, WrongVcs):
            self.knowledge.learn(state)
