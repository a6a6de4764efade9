"""netem.pytest_plugin, netem.ratchet: budgets of tests, and the file that has them."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from netem import pytest_plugin
from netem.packets.errors import Unavailable
from netem.packets.network import Packets
from netem.ratchet import Budgets, BudgetsError

TEXT = """\
# Why they are what they are.
[operations]

push = 3   # it must ask first
"pull one revision" = 2
'log' = 1

[verbs]
ping = 2
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "budgets.toml"
    path.write_text(TEXT)
    return path


def test_what_was_written_into_the_file_meanwhile_stays(path: Path) -> None:
    budgets = Budgets(path)
    budgets.measured("push", 1)
    budgets.measured("ping", 1)
    meanwhile = TEXT.replace("ping = 2", "ping = 0") + "clone = 4  # new\n"
    path.write_text(meanwhile)
    path.chmod(0o640)
    budgets.lower()
    assert path.read_text() == meanwhile.replace("push = 3 ", "push = 1 ")
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_link_to_the_file_stays_one(path: Path) -> None:
    link = path.with_name("link.toml")
    link.symlink_to(path.name)
    budgets = Budgets(link)
    budgets.measured("push", 1)
    budgets.lower()
    assert link.is_symlink()
    assert "push = 1 " in path.read_text()


def test_line_ends_are_kept(path: Path) -> None:
    path.write_bytes(b"# why\r\npush = 3\r\nlog = 1")
    budgets = Budgets(path)
    budgets.measured("push", 2)
    budgets.measured("log", 0)
    budgets.lower()
    assert path.read_bytes() == b"# why\r\npush = 2\r\nlog = 0"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("push = ", r"budgets\.toml: "),
        ("push = 'one'", r":1: expected a budget"),
        ("push = -1", r":1: expected a budget"),
        ("push = 1.5", r":1: expected a budget"),
        ("# fine\npush = [\n1,\n]", r":2: expected a budget"),
        ("a.b = 1", r":1: expected a budget"),
        ("[a]\npush = 1\n[b]\n'push' = 1", r":4: 'push' appears twice"),
    ],
)
def test_a_file_without_budgets(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(BudgetsError, match=why):
        Budgets(path)


pytest_plugins = ["pytester"]

PREAMBLE = """
import pytest
from simulated_servers import Echo

def ping(stream, times=1):
    for _ in range(times):
        stream.send(b"ping")
        assert stream.read(9) == b"ping"
"""


def run(pytester: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(PREAMBLE + body)
    installed = any(point.value == pytest_plugin.__name__ for point in entry_points(group="pytest11"))
    arguments = [] if installed else ["-p", pytest_plugin.__name__]
    return pytester.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider", *arguments, *options)


def test_within_the_limit(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
@pytest.mark.max_round_trips(2)
def test_cold(network):
    ping(network.connect(Echo))

@pytest.mark.max_round_trips(1)
def test_warm(network):
    ping(network.connect(Echo, handshake=False))

@pytest.mark.max_round_trips(1, handshake=False)
def test_handshake_left_out(network):
    ping(network.connect(Echo))

@pytest.mark.max_round_trips(1)
def test_after_take(network):
    stream = network.connect(Echo)
    ping(stream, 5)
    network.take()
    ping(stream)

def test_without_mark(network):
    ping(network.connect(Echo), 50)
""",
    ).assert_outcomes(passed=5)


def test_a_marked_test_that_used_no_network_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_round_trips(3)
def test_no_fixture():
    pass

@pytest.mark.max_round_trips(3)
def test_unused(network):
    pass

@pytest.mark.max_round_trips(3)
def test_all_taken(network):
    ping(network.connect(Echo))
    network.take()
""",
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["@pytest.mark.max_round_trips(3) on a test that used no network: it cannot fail"])


@pytest.mark.parametrize("arguments", ["", "-1", "1.5", "True", "1, 2", "1, handshakes=False", "1, handshake=0", "n=1"])
def test_a_mark_that_says_nothing_is_an_error(pytester: pytest.Pytester, arguments: str) -> None:
    result = run(
        pytester,
        f"""
@pytest.mark.max_round_trips({arguments})
def test_it(network):
    ping(network.connect(Echo))
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["expected @pytest.mark.max_round_trips(n) or (n, handshake=False)*"])


def test_a_failing_test_fails_for_its_own_reason(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_round_trips(0)
def test_it(network):
    ping(network.connect(Echo), 9)
    assert "this" == "that"
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*round trips, at most*")


BUDGETS = """
# why
push = 2
pull = 3  # it asks twice
"""

BUDGETED = """
@pytest.mark.max_round_trips("push")
def test_push(network):
    ping(network.connect(Echo, handshake=False), 2)

@pytest.mark.max_round_trips("pull")
@pytest.mark.parametrize("times", [1, 2])
def test_pull(network, times):
    ping(network.connect(Echo, handshake=False), times)
"""


@pytest.fixture
def budgets(pytester: pytest.Pytester) -> Path:
    pytester.makeini("[pytest]\nround_trip_budgets = limits/budgets.toml")
    path = pytester.path / "limits" / "budgets.toml"
    path.parent.mkdir()
    path.write_text(BUDGETS)
    return path


def test_a_run_tells_which_budgets_may_fall(pytester: pytest.Pytester, budgets: Path) -> None:
    result = run(pytester, BUDGETED)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["budget of pull may fall from 3 to 2: pytest --update-budgets"])
    result.stdout.no_fnmatch_line("budget of push*")
    assert budgets.read_text() == BUDGETS


def test_budgets_are_lowered_where_they_are_written(pytester: pytest.Pytester, budgets: Path) -> None:
    result = run(pytester, BUDGETED, "--update-budgets")
    result.stdout.fnmatch_lines(["budget of pull fell from 3 to 2"])
    assert budgets.read_text() == BUDGETS.replace("pull = 3", "pull = 2")
    result = run(pytester, BUDGETED)
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("budget of*")


def test_beyond_a_budget(pytester: pytest.Pytester, budgets: Path) -> None:
    budgets.write_text(BUDGETS.replace("push = 2", "push = 1"))
    result = run(pytester, BUDGETED, "--update-budgets")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(['2 round trips, at most 1 allowed by the budget "push"'])
    assert "push = 1" in budgets.read_text()


@pytest.mark.parametrize(
    ("option", "outcomes"), [("-knot 2", {"passed": 2, "deselected": 1}), ("-v", {"passed": 2, "failed": 1})]
)
def test_a_budget_does_not_fall_by_what_some_of_its_tests_took(
    pytester: pytest.Pytester, budgets: Path, option: str, outcomes: dict[str, int]
) -> None:
    """One test of two was left out, or failed."""
    body = BUDGETED.replace("times)\n", "times)\n    assert times == 1\n")
    run(pytester, body, "--update-budgets", option).assert_outcomes(**outcomes)
    assert budgets.read_text() == BUDGETS


def test_a_name_without_a_budget(pytester: pytest.Pytester, budgets: Path) -> None:
    result = run(pytester, BUDGETED.replace('"pull"', '"fetch"'))
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*budgets.toml has no budget of 'fetch'"])


def test_a_budget_and_no_file(pytester: pytest.Pytester) -> None:
    result = run(pytester, BUDGETED)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*max_round_trips('push'): the ini option round_trip_budgets names no file"])


@pytest.mark.parametrize(
    ("ini", "option", "why"),
    [
        ("", "--update-budgets", "--update-budgets: the ini option round_trip_budgets names no file"),
        ("round_trip_budgets = absent.toml", "-v", "round_trip_budgets: *No such file*absent.toml*"),
    ],
)
def test_a_file_that_is_none(pytester: pytest.Pytester, ini: str, option: str, why: str) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    result = run(pytester, "", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{why}"])


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["test_one.py::test_pull"],
        ["."],
        ["--ignore", "test_two.py"],
        ["--ignore-glob=*two*"],
        ["--lf"],
    ],
)
def test_budgets_are_not_lowered_by_some_of_the_tests(
    pytester: pytest.Pytester, budgets: Path, arguments: list[str]
) -> None:
    """Another test of the same budget may need more, and was not even collected."""
    pytester.makepyfile(test_one=PREAMBLE + BUDGETED, test_two=PREAMBLE + BUDGETED.replace("[1, 2]", "[3]"))
    result = pytester.runpytest_subprocess("--update-budgets", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--update-budgets: not with {arguments[0]}*run all of them*"])
    assert budgets.read_text() == BUDGETS


def test_budgets_are_not_lowered_by_the_tests_of_one_folder(pytester: pytest.Pytester, budgets: Path) -> None:
    folder = pytester.mkdir("some")
    (folder / "test_some.py").write_text(PREAMBLE + BUDGETED)
    with pytest.MonkeyPatch.context() as inside:
        inside.chdir(folder)
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--update-budgets")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--update-budgets: not with the tests of {folder} alone*"])


def test_a_file_that_cannot_be_written_fails_the_run_and_nothing_fell(
    pytester: pytest.Pytester, budgets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("netem.ratchet._replace", full)
    result = run(pytester, BUDGETED, "--update-budgets")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["no budget fell: *No space left on device*budgets.toml*"])
    result.stdout.no_fnmatch_line("*fell from*")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize(("processes", "refused"), [("2", True), ("0", False)])
def test_budgets_are_not_lowered_by_tests_that_are_distributed(
    pytester: pytest.Pytester, budgets: Path, processes: str, refused: bool
) -> None:
    """The option is xdist's; there the process that writes the file has not collected the tests."""
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--numprocesses', type=int)")
    result = run(pytester, BUDGETED, "-p", "no:xdist", "--update-budgets", "--numprocesses", processes)
    if refused:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--update-budgets: not with pytest-xdist; run the tests in one process*"])
    assert ("pull = 3" in budgets.read_text()) is refused


@pytest.mark.parametrize(("required", "outcomes"), [("0", {"skipped": 1}), ("1", {"errors": 1})])
def test_where_there_is_no_packet_network_a_test_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: str, outcomes: dict[str, int]
) -> None:
    def start(_: Packets) -> None:
        raise Unavailable("cannot create a packet network: this is a test")

    monkeypatch.setattr(Packets, "start", start)
    monkeypatch.setenv("REQUIRE_ALL", required)
    result = run(pytester, "def test_it(packet_network): pass", "-rs")
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(["*cannot create a packet network: this is a test*"])
