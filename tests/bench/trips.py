"""Round trips of each git operation: counted on the link, held connection and all, and as the slope of wall time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import Report
from netem.meter import Slope, fit
from smartserver.cli.demo_run import Comparison, Operation, Row, Side
from smartserver.cli.errors import one_line
from smartserver.cli.operations import OperationCost, run
from smartserver.cli.servers import Say, Workspace

FIRST_CONTACT = 3
"""Trips of a push to an existing repository that nothing is known of: the handshake, asking or guessing, and once
more with what the answer taught."""

SLOPE, TOLERANCE = 2.0, 0.05
RTTS = (0.2, 0.6, 1.0)
"""Seconds; under 100 ms the noise of starting processes is as large as what is measured."""

WARM_ROUNDS = 3

SMALL = 1_000_000
"""Bytes of history up to which a slope is judged: what a larger one costs in CPU hides a trip."""


class AllOperations(Comparison):
    """The demo's operations and the others a user has, first contact without cache among them."""

    def operations(self) -> list[Operation]:
        """What is done, in order."""
        found = [o for o in super().operations() if not o.name.startswith("diverged")]
        return [
            *found,
            Operation("ls-remote", self.list_refs),
            Operation("push two tags", self.push_tags, before=self.make_tags),
            Operation("atomic push of two branches", self.push_atomic, before=self.make_branches),
            Operation("delete a branch", self.delete),
            Operation("tag that must not move, refused", self.move_tag, before=self.change_tag),
            Operation("diverged push, refused", self.push_diverged, before=self.put_things_right),
            Operation("atomic push, refused", self.push_atomic_refused),
            Operation("no cache: push one commit", self.push_one, self.commit_one_and_forget, FIRST_CONTACT),
            Operation("no cache: push a new branch", self.push_third, self.commit_third_and_forget, FIRST_CONTACT),
            Operation("no cache: diverged push, refused", self.push_diverged, self.forget, FIRST_CONTACT),
            Operation("no cache: delete a branch", self.delete_third, self.forget, FIRST_CONTACT),
            Operation("no cache: fetch nothing", self.fetch, self.forget_and_drop_third),
        ]

    def list_refs(self, side: Side) -> None:
        """Every ref's name and tip."""
        self.git(side, 0, "ls-remote", "origin")

    def make_tags(self, side: Side) -> None:
        """A light tag and an annotated one."""
        self.git(side, 0, "tag", "bench-light")
        self.git(side, 0, "tag", "-a", "-m", "annotated", "bench-annotated")

    def push_tags(self, side: Side) -> None:
        """Both."""
        self.git(side, 0, "push", "--quiet", "origin", "bench-light", "bench-annotated")

    def make_branches(self, side: Side) -> None:
        """Two, each at a commit of its own."""
        for branch in ("bench-one", "bench-two"):
            self.commit_branch(side, branch)

    def push_atomic(self, side: Side) -> None:
        """Both or none."""
        self.git(side, 0, "push", "--quiet", "--atomic", "origin", "bench-one", "bench-two")

    def delete(self, side: Side) -> None:
        """A branch, on the server."""
        self.git(side, 0, "push", "--quiet", "origin", "--delete", "bench-two")

    def change_tag(self, side: Side) -> None:
        """Put a tag somewhere else, here."""
        self.git(side, 0, "tag", "--force", "bench-light", "HEAD~1")

    def move_tag(self, side: Side) -> None:
        """Refused without --force."""
        self.refused(side, 0, ("already exists",), "bench-light")

    def put_things_right(self, side: Side) -> None:
        """What was deleted or refused on the server is so here too, and the second user has diverged again."""
        self.git(side, 0, "branch", "--quiet", "-D", "bench-two")
        self.git(side, 0, "tag", "--force", "bench-light", "HEAD")
        self.commit_diverged(side)

    def push_atomic_refused(self, side: Side) -> None:
        """A branch that could be pushed and one that cannot."""
        self.refused(
            side, 1, ("atomic", "non-fast-forward", "fetch first"), "--atomic",
            f"HEAD:refs/heads/{self.branch}", "HEAD:refs/heads/bench-both",
        )  # fmt: skip

    def commit_one_and_forget(self, side: Side) -> None:
        """One commit on the main branch."""
        self.commit_one(side)
        self.forget(side)

    def commit_third_and_forget(self, side: Side) -> None:
        """One commit on a branch of its own."""
        self.commit_branch(side, "bench-third")
        self.forget(side)

    def push_third(self, side: Side) -> None:
        """That branch."""
        self.git(side, 0, "push", "--quiet", "origin", "bench-third")

    def delete_third(self, side: Side) -> None:
        """That branch, on the server."""
        self.git(side, 0, "push", "--quiet", "origin", "--delete", "bench-third")

    def forget(self, side: Side) -> None:
        """Both users remember nothing of any remote, nor do their repositories."""
        for user, environment in enumerate(side.environments):
            remembered = Path(environment["XDG_CACHE_HOME"]) / "smartserver"
            if remembered.exists():
                for file in sorted(remembered.rglob("*"), reverse=True):
                    file.rmdir() if file.is_dir() else file.unlink()
            if user == 0:
                for name in self.git(side, user, "for-each-ref", "--format=%(refname)", "refs/remotes").split():
                    self.git(side, user, "update-ref", "--no-deref", "-d", name)

    def forget_and_drop_third(self, side: Side) -> None:
        """The branch is gone here too before the last check."""
        self.git(side, 0, "branch", "--quiet", "-D", "bench-third")
        self.fetch_then_forget(side)

    def fetch_then_forget(self, side: Side) -> None:
        """So that there is nothing to fetch."""
        self.fetch(side)
        self.forget(side)


@dataclass(slots=True)
class Trips:
    """One operation over all runs."""

    operation: str
    budget: int
    ours: int = 0
    git: int | None = None
    our_seconds: list[tuple[float, float]] = field(default_factory=list)
    """RTT and seconds of each run."""
    git_seconds: list[tuple[float, float]] = field(default_factory=list)


def run_trips(source: Path | None, rtts: Sequence[float], repeat: int, say: Say) -> tuple[Report, list[str]]:
    """Run every operation at each RTT, `repeat` times; the table, and what came out wrong.

    Git is run in the first turn alone: its slopes rest on fewer points.

    Raises:
        CommandError: an operation that must succeed did not.
    """
    found: dict[str, Trips] = {}
    problems: list[str] = []
    report = Report("")
    small = True
    with one_line("held connection"):
        held = list(_warm(say))
    for turn in range(repeat):
        with ExitStack() as stack:
            comparisons = [
                stack.enter_context(AllOperations(source, rtt, None, say, with_git=not turn)) for rtt in rtts
            ]
            # Each operation at every RTT before the next: a machine that grows slower does not look like a slope.
            for rows in zip(*[comparison.rows() for comparison in comparisons], strict=True):
                for rtt, row in zip(rtts, rows, strict=True):
                    _take(found, row, rtt)
                    small &= max(row.ours.bytes_up, row.ours.bytes_down) < SMALL
                say(f"  {rows[0].operation}")
            problems += [problem for comparison in comparisons for problem in comparison.problems]
            report.title = report.title or comparisons[0].title.partition(", link")[0]
    report.title += f"; fresh connections, RTT {', '.join(f'{rtt:g}' for rtt in rtts)} s, {repeat} times"
    for trips in found.values():
        _judge(report, trips, small=small)
    for warm in held:
        bar = "1"
        report.add(f"held connection: {warm.operation}", str(warm.round_trips), "", bar, warm.round_trips <= 1)
    return report, problems


def _take(found: dict[str, Trips], row: Row, rtt: float) -> None:
    trips = found.setdefault(row.operation, Trips(row.operation, row.budget))
    trips.ours = max(trips.ours, row.ours.round_trips)
    trips.our_seconds.append((rtt, row.ours.seconds))
    if row.git is not None:
        trips.git = max(trips.git or 0, row.git.round_trips)
        trips.git_seconds.append((rtt, row.git.seconds))


def line(points: Sequence[tuple[float, float]]) -> Slope | None:
    """The straight line through the shortest run at each RTT; None for fewer than three RTTs.

    What else the machine does makes a run longer and never shorter.
    """
    rtts = sorted({rtt for rtt, _ in points})
    if len(rtts) < 3:
        return None
    return fit([(rtt, min(seconds for at, seconds in points if at == rtt)) for rtt in rtts])


def _judge(report: Report, trips: Trips, *, small: bool) -> None:
    ours, git = line(trips.our_seconds), line(trips.git_seconds)
    bar = str(trips.budget)
    ok = trips.ours <= trips.budget
    # Of what takes 3 trips "never one more" is asked, which the count says.
    if ours is not None and small and trips.budget == SLOPE:
        bar += f", {SLOPE:.2f} +- {TOLERANCE}"
        ok &= abs(ours.rounds - SLOPE) <= TOLERANCE
    git_trips = "-" if trips.git is None else str(trips.git)
    report.add(trips.operation, str(trips.ours) + _shown(ours), git_trips + _shown(git), bar, ok)


def _shown(slope: Slope | None) -> str:
    return "" if slope is None else f", {slope.rounds:.2f} (residual {slope.residual * 1000:.0f} ms)"


def _warm(say: Say) -> Iterator[OperationCost]:
    say("held connection")
    with Workspace("bench") as work:
        server = work.start_ours()
        yield from run(server.url("bench"), WARM_ROUNDS)
