"""client.repository against a dictionary: pushes and pulls of two users, over links that break, with memories that are
wrong; what the server has is what the rules say, and what a client believes after an answer is what the server has.

What is refused only after it was sent again is said to be unknown, since the first sending might still be carried out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from builders import MAIN, History, request_id
from history_sources import NEW, HistorySource
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from simulated_joint import Joint

from netem.effects import Cut
from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.client.medium import MediumError
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import OutcomeUnknown
from smartserver.records.segment import SegmentStream, decode_segment
from smartserver.verbs.rules import Create, Rule
from smartserver.wire.events import Event, Request
from smartserver.wire.messages import decode_request

PATH = "project"
TOPIC, TAG = b"refs/heads/topic", b"refs/tags/v1"


def _graph() -> tuple[History, list[bytes]]:
    """Sixteen revisions: a line, two branches of it, merges, and a root of its own."""
    history = History()
    line = history.line(6)
    first = history.line(3, line[1], "first")
    second = history.line(3, line[3], "second")
    merge = history.commit({**history.files(line[5]), **history.files(first[2])}, [line[5], first[2]])
    again = history.commit({**history.files(merge), **history.files(second[2])}, [merge, second[2]])
    return history, [*line, *first, *second, merge, again, *history.line(2, None, "other")]


HISTORY, REVISIONS = _graph()

refs = st.sampled_from([MAIN, TOPIC, TAG])
tips = st.sampled_from(REVISIONS)
users = st.sampled_from([0, 1])


def expected(state: Mapping[bytes, bytes], update: RefUpdate) -> tuple[Outcome, str]:
    """The outcome of an update by the rules: the verdict, and the code of a refusal."""
    old = state.get(update.ref)
    if update.tip is None:
        if update.expected is not None and update.expected != (old or b""):
            return Outcome.REFUSED, "stale-lease"
        if old is None:
            return Outcome.UNCHANGED, ""
        return (Outcome.REFUSED, "head-branch") if update.ref == MAIN else (Outcome.DONE, "")
    if old == update.tip:
        return Outcome.UNCHANGED, ""
    if old is not None and update.create is Create.MUST:
        return Outcome.REFUSED, "branch-exists"
    if update.create is not Create.MUST and update.rule is Rule.LEASE and (old or b"") != (update.expected or b""):
        return Outcome.REFUSED, "stale-lease"
    if old is None:
        return (Outcome.REFUSED, "no-such-branch") if update.create is Create.NO else (Outcome.DONE, "")
    if update.rule is Rule.NEW:
        return Outcome.REFUSED, "branch-exists"
    if update.rule is Rule.FF and old not in HISTORY.ancestors([update.tip]):
        return Outcome.REFUSED, "diverged"
    return Outcome.DONE, ""


updates = st.one_of(
    st.builds(RefUpdate, refs, tips),
    st.builds(RefUpdate, refs, tips, st.sampled_from(Rule), st.sampled_from(Create), st.none() | tips),
    st.builds(RefUpdate, refs, st.none(), expected=st.none() | tips),
)
several = st.lists(updates, min_size=1, max_size=3, unique_by=lambda each: each.ref)


class Repeats:
    """Counts the requests that are sent again."""

    def __init__(self) -> None:
        self.count = 0

    def connecting(self) -> None:
        pass

    def sent(self, event: Event, size: int) -> None:
        self.count += isinstance(event, Request) and decode_request(event.payload).age > 0

    def received(self, event: Event, size: int) -> None:
        pass


class Pushes(RuleBasedStateMachine):
    """Two users and a server."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = Joint(SimulatedNetwork(Link(0.1)))
        self.repeats = Repeats()
        self.clients = [self.joint.client([self.repeats]) for _ in range(2)]
        self.remotes = [self._remote(user) for user in range(2)]
        self.source = HistorySource(HISTORY)
        self.refs: dict[bytes, bytes] = {}
        self.there = False

    def _remote(self, user: int) -> RemoteRepository:
        return self.joint.remote(PATH, self.clients[user])

    @initialize(tip=tips)
    def begin(self, tip: bytes) -> None:
        self.push(0, [RefUpdate(MAIN, tip)], False)

    @rule(user=users, listed=several, atomic=st.booleans())
    def push(self, user: int, listed: list[RefUpdate], atomic: bool) -> None:
        before, after, verdicts = dict(self.refs), dict(self.refs), []
        for update in listed:
            outcome, code = expected(after, update)
            verdicts.append((outcome, code))
            if outcome is Outcome.DONE:
                after.pop(update.ref, None)
                if update.tip is not None:
                    after[update.ref] = update.tip
        refused = [outcome for outcome, _ in verdicts if outcome is Outcome.REFUSED]
        if refused and (atomic or len(refused) == len(verdicts)):
            after = before
            verdicts = [(Outcome.REFUSED, code if code else "not-done") for _, code in verdicts]
        repeats = self.repeats.count
        try:
            done = self.remotes[user].push(PushRequest(listed, self.source, NEW, atomic=atomic)).refs
        except OutcomeUnknown:
            assert self.joint.refs(PATH) in (before, after)
            self.refs = self.joint.refs(PATH)
            self.there = self.joint.site.find(PATH).exists
            return
        except MediumError:
            assert self.joint.refs(PATH) == before
            return
        said = [(each.outcome, each.error.code if each.error else "") for each in done]
        if self.repeats.count > repeats and "outcome-unknown" in {code for _, code in said}:
            verdicts = [(outcome, "outcome-unknown" if code else "") for outcome, code in verdicts]
        assert said == verdicts
        self.refs = after
        self.there = self.joint.site.find(PATH).exists
        if self.there:
            known = {name: value[0].id for name, value in self.remotes[user].knowledge.refs().items()}
            assert known == after

    @rule(user=users, have=st.lists(tips, max_size=2))
    def pull(self, user: int, have: list[bytes]) -> None:
        if not self.there:
            return
        held = HISTORY.ancestors(have)
        try:
            pulled = self.remotes[user].pull(have)
            body = b"".join(pulled.body)
        except MediumError:
            return
        stream = SegmentStream(graph_first=False)
        stream.feed(body)
        came = [decode_segment(each, 0, NEW.kinds).revision for each in stream.segments()]
        stream.finish()
        wanted = HISTORY.ancestors(self.refs.values())
        # A have that the server lacks tells it nothing.
        known = {each for each in held if self.joint.site.find(PATH).repository.begin().is_stored(each)}
        assert wanted - held <= set(came) <= wanted
        assert len(came) == len(set(came)) == pulled.result.segments
        for number, revision in enumerate(came):
            assert set(HISTORY.parents[revision]) <= {*came[:number], *known}

    @rule(user=users, listed=several)
    def dry_run(self, user: int, listed: list[RefUpdate]) -> None:
        before = self.joint.refs(PATH)
        with contextlib.suppress(MediumError):
            self.remotes[user].push(PushRequest(listed, self.source, NEW, check_only=True))
        assert self.joint.refs(PATH) == before

    @rule(user=users)
    def forget(self, user: int) -> None:
        self.remotes[user] = self._remote(user)

    @rule(user=users)
    def hang_up(self, user: int) -> None:
        self.clients[user].close()

    @rule()
    def delete_the_repository(self) -> None:
        if self.there:
            self.joint.site.find(PATH).repository.delete(request_id(), 0, "somebody")
            self.refs, self.there = {}, False

    @rule(cuts=st.lists(st.tuples(st.booleans(), st.integers(0, 1500)), min_size=1, max_size=3))
    def the_next_connections_break(self, cuts: list[tuple[bool, int]]) -> None:
        self.joint.network.links.clear()
        for up, at in cuts:
            self.joint.network.links.append(Link(0.1, up=[Cut(at)] if up else (), down=() if up else [Cut(at)]))
        for client in self.clients:
            client.close()

    @invariant()
    def the_server_has_what_the_rules_say(self) -> None:
        self.joint.network.clock.run()
        assert self.joint.refs(PATH) == self.refs

    def teardown(self) -> None:
        for client in self.clients:
            client.close()
        self.joint.network.clock.run()
        if self.there:
            assert self.joint.site.find(PATH).repository.verify().problems == ()
        assert not [path for path in self.joint.tree() if path.startswith(f"{PATH}/incoming/")]


TestPushes = Pushes.TestCase
TestPushes.settings = settings(max_examples=40, stateful_step_count=25)
