"""bench.command and every measurement on tiny histories: it runs, prints a table, fails when a bar is missed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import commits, copies, diverged, history, pushes, report, stall, trips, writers
from bench.command import command
from bench.process import MODULES
from bench.push import Pushed
from bench.report import Report
from benches import bench
from click.testing import CliRunner, Result

from smartserver.cli.demo_run import Operation, Row
from smartserver.cli.histories import generate
from smartserver.cli.servers import LinkCost

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.interop,
    pytest.mark.unbanned("a bench does the same many times, each time as an operation of its own"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of 12 commits, some of them merges."""
    folder = tmp_path_factory.mktemp("source") / "source.git"
    generate(folder, os.environ, count=9)
    # The same bytes each time: what compresses to one byte more today might miss a bar.
    said = {"NAME": "a@b", "EMAIL": "a@b", "DATE": "1700000000 +0000"}
    environment = os.environ | {f"GIT_{who}_{what}": said[what] for who in ("AUTHOR", "COMMITTER") for what in said}

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    side = git("commit-tree", "-p", "main~3", "-m", "side", "main~5^{tree}")
    merge = git("commit-tree", "-p", "main", "-p", side, "-m", "merge", "main^{tree}")
    git("update-ref", "refs/heads/main", git("commit-tree", "-p", merge, "-m", "last", "main~1^{tree}"))
    git("tag", "v1", "main~2")
    return folder


def rows(result: Result) -> dict[str, str]:
    """The lines of the table, by their first words."""
    found = {}
    for line in result.stdout.splitlines():
        what, gap, rest = line.partition("  ")
        if gap and what:
            found[what] = rest.strip()
    return found


def refuse_all(monkeypatch: pytest.MonkeyPatch, module: object, names: Sequence[str]) -> None:
    """Bars nothing can reach."""
    for name in names:
        monkeypatch.setattr(module, name, -1)


def test_trips(temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trips.AllOperations.operations
    monkeypatch.setattr(trips, "FIRST_CONTACT", 1)

    def some(self: trips.AllOperations) -> list[Operation]:
        found = whole(self)
        names = [operation.name for operation in found]
        assert len(names) == len(set(names))
        return [*found[:2], *[operation for operation in found if operation.name == "no cache: push one commit"]]

    monkeypatch.setattr(trips.AllOperations, "operations", some)
    monkeypatch.setattr(trips, "WARM_ROUNDS", 1)
    result = bench(temporary, "trips", source, "--rtt", "5ms", "--repeat", "1")
    found = rows(result)
    assert found["clone"].split() == ["2", "4", "2", "ok"]
    assert found["no cache: push one commit"].endswith("MISSED")
    assert found["held connection: push one commit"].split() == ["1", "1", "ok"]
    assert "no cache: push one commit: 2 round trips, expected 1 at most" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("points", "rounds"),
    [
        ([(0.2, 1.4), (0.6, 2.2), (1.0, 3.0), (0.2, 9.0), (0.2, 1.4), (0.6, 2.2), (1.0, 3.0)], 2.0),
        ([(0.2, 1.4), (1.0, 3.0)], None),
    ],
)
def test_a_slope_goes_through_the_shortest_runs_at_three_rtts(
    points: list[tuple[float, float]], rounds: float | None
) -> None:
    slope = report.Runs([(rtt, LinkCost(0, seconds, 0, 0)) for rtt, seconds in points]).slope
    assert (slope and round(slope.rounds, 6)) == rounds


@pytest.mark.parametrize(
    ("slope", "budget", "small", "ok"),
    [(2.0, 2, True, True), (2.04, 2, True, True), (2.06, 2, True, False), (1.9, 2, True, False), (2.5, 2, False, True),
     (3.2, 3, True, True)],
)  # fmt: skip
def test_a_slope_is_judged_on_small_repositories(slope: float, budget: int, small: bool, ok: bool) -> None:
    judged = Report("")
    runs = [(rtt, Row("push", LinkCost(budget, 0.3 + slope * rtt, 0, 0), None, budget)) for rtt in trips.RTTS]
    trips._judge(judged, runs, small=small)
    assert judged.figures[0].ok is ok
    assert f"{slope:.2f}" in judged.figures[0].ours


def test_history(temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a repository of 12 commits takes is the time Python takes to start.
    for name in ("PUSH_RATIO", "CLONE_RATIO", "SIZE_RATIO", "VERIFY_RATIO"):
        monkeypatch.setattr(history, name, 1e6)
    result = bench(temporary, "history", source, "--repeat", "1")
    assert "12 commits" in result.stdout
    assert sum(rest.endswith("ok") for rest in rows(result).values()) == 9
    assert result.exit_code == 0, result.stdout


def test_history_that_costs_too_much_and_comes_back_otherwise(
    temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differences = history.History.differences
    tip = subprocess.run(["git", "rev-parse", "main~1"], cwd=source, capture_output=True, text=True, check=True).stdout

    def tampered(self: history.History) -> list[str]:
        (self.copied(self.ours) / "refs" / "heads" / "other").write_text(tip)
        return differences(self)

    monkeypatch.setattr(history.History, "differences", tampered)
    refuse_all(monkeypatch, history, ("PUSH_RATIO", "CLONE_RATIO", "SIZE_RATIO", "VERIFY_RATIO"))
    refuse_all(monkeypatch, copies, ("MEMORY",))
    result = bench(temporary, "history", source, "--repeat", "1")
    assert sum(rest.endswith("MISSED") for rest in rows(result).values()) == 9
    assert "wrong: git refs of the source and of the clone differ" in result.stderr
    assert result.exit_code == 1


def test_commits(temporary: Path, source: Path) -> None:
    result = bench(temporary, "commits", source, "-n", "8", "--refs", "1,30")
    found = rows(result)
    assert "8 commits of main" in result.stdout
    assert found["bytes both ways: median"].endswith("ok")
    assert found["14,480 up or more where git's thin pack is under"].split() == ["0", "0", "ok"]
    assert found["30 refs: most that a push grew"].endswith("ok")
    git_down = [
        int(found[f"{refs} refs, 8 pushes: bytes down, median"].split()[1].replace(",", "")) for refs in (1, 30)
    ]
    assert git_down[1] > git_down[0] + 29 * 60, "the refs were not there"
    assert result.exit_code == 0, result.stdout


def test_commits_from_the_root(temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit without parents goes to a server without any of the history."""
    monkeypatch.setattr(commits, "INITIAL_WINDOW", 400)
    result = bench(temporary, "commits", source, "-n", "100")
    assert "12 commits of main" in result.stdout
    assert rows(result)["400 up or more"].split()[0] != "0"


def test_commits_says_what_is_no_number(temporary: Path, source: Path) -> None:
    result = bench(temporary, "commits", source, "--refs", "1,x")
    assert (result.exit_code, "expected numbers with commas" in result.stderr) == (2, True)


@pytest.mark.parametrize("by", ["library", "git"])
def test_pushes(by: str, temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "TIME_RATIO", 1e6)
    monkeypatch.setattr(pushes, "SIZE_RATIO", 1e6)
    result = bench(temporary, "pushes", source, "-n", "7", "--by", by)
    found = rows(result)
    assert "7 one-commit pushes in a row" in result.stdout
    assert found["deepest base chain"].endswith("ok")
    assert found["packs at the end"].endswith("ok")
    assert result.exit_code == 0, result.stdout


def test_pushes_that_leave_too_much(temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_all(monkeypatch, pushes, ("DEEPEST", "PACKS", "SIZE_RATIO", "TIME_RATIO"))
    result = bench(temporary, "pushes", source, "-n", "3")
    assert sum(rest.endswith("MISSED") for rest in rows(result).values()) == 4
    assert result.exit_code == 1


def test_writers(temporary: Path) -> None:
    result = bench(temporary, "writers", "-n", "5", "--writers", "2")
    found = rows(result)
    for label in ("one server", "server each", "git push"):
        assert found[f"{label}: acknowledged and not there"].split() == ["0", "0", "ok"]
        assert found[f"{label}: verify"].endswith("ok")
    assert result.exit_code == 0, result.stdout


def test_writers_see_what_is_not_there(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = writers._library

    def more(*arguments: object) -> writers.Outcome:
        outcome = library(*arguments)  # type: ignore[arg-type]
        return writers.Outcome([*outcome.pushed, Pushed("77" * 20, "refs/heads/gone", 0.1)], outcome.seconds)

    monkeypatch.setattr(writers, "_library", more)
    result = bench(temporary, "writers", "-n", "1", "--writers", "1")
    assert rows(result)["one server: acknowledged and not there"].split() == ["2", "0", "MISSED"]
    assert f"commit {'77' * 20} was acknowledged and is not there" in result.stderr
    assert "refs/heads/gone is at None" in result.stderr
    assert result.exit_code == 1


def test_the_last_acknowledged_push_counts() -> None:
    pushed = [Pushed("a", "x", 0.1), Pushed("b", "y", 0.1), Pushed("c", "x", 0.1), Pushed("d", "x", 0.1, "refused")]
    assert writers.last_acknowledged(pushed) == {"x": "c", "y": "b"}


@pytest.mark.parametrize("missed", [False, True])
def test_diverged(missed: bool, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The true bar has no room for a busy machine's pauses: the benchmark judges by it, here it is far off.
    monkeypatch.setattr(diverged, "SOCKET_BUFFER", -10_000_000 if missed else 10_000_000)
    result = bench(temporary, "diverged", "--size", "4MB", "--rtt", "50ms", "--rate", "8mbit")
    found = rows(result)
    assert found["trips until it was refused"].split() == ["2", "2", "2", "ok"]
    entered = int(found["bytes that entered the link"].split()[0].replace(",", ""))
    assert 1000 < entered < 3_000_000
    assert found["bytes that entered the link"].endswith("MISSED" if missed else "ok")
    assert result.exit_code == int(missed)


def test_stall(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "CONTENT", 16_000_000)
    monkeypatch.setattr(stall, "TURNS", 1)
    monkeypatch.setattr(stall, "SLOWER", 1e6)
    result = bench(temporary, "stall", "-n", "8", "--clones", "2")
    found = rows(result)
    assert found["memory of the server, beside them"].endswith("ok")
    assert "8 pushes beside 2 stalled clones and 8 without" in result.stdout
    assert result.exit_code == 0, result.stdout


def test_stall_says_when_nothing_stalls(temporary: Path, source: Path) -> None:
    result = CliRunner().invoke(command, ["stall", str(source), "-n", "4"])
    assert "too small" in str(result.exception)
    assert list(temporary.iterdir()) == []


def test_an_interrupted_measurement_leaves_nothing(temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "writers", "-n", "1000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | MODULES | {"TMPDIR": str(temporary)},
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.readline()
    assert b"writers on one connection" in said
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does it: the children get it too.
    output, errors = process.communicate()
    assert (process.returncode, output, errors.strip()) == (130, b"", b"interrupted")
    assert list(temporary.iterdir()) == []


def test_bans_beside_none() -> None:
    """Each operation is one, so that doing it often is no duplicate; what is banned ends it."""
    result = CliRunner().invoke(command, ["bans", "silly", "vfs:*", "-n", "3"])
    assert result.exit_code == 0, result.output
    assert sum(line.endswith("ok") for line in result.output.splitlines()) == 9
    for rule, why in (
        ("rpc:Server.ping", "Server.ping is banned by the rule rpc:Server.ping; called from"),
        ("sily", "no such rule: 'sily'; near it: silly"),
    ):
        assert why in str(CliRunner().invoke(command, ["bans", rule]).exception)
