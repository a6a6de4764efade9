"""smartserver.pytest_plugin: a mark that fails a test in which a client makes calls that it must not."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from traces import RECORDING

from smartserver import pytest_plugin

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.unbanned("its tests ban, and are run in this process")

PREAMBLE = """
import os, subprocess, sys
import pytest
from memory_transport import MemoryTransport
from smartserver.client.call import Client
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.verbs.server_info import InfoRequest, server_info

def Medium():
    return SameProcess(Site(MemoryTransport()), invoking_user("anna"))

def ask(client):
    return client.call(server_info, InfoRequest())
"""


def run(pytester: pytest.Pytester, body: str, ini: str = "", *options: str) -> pytest.RunResult:
    pytester.makepyfile(PREAMBLE + body)
    pytester.makeini(f"[pytest]\n{ini}\n")
    installed = any(point.value == pytest_plugin.__name__ for point in entry_points(group="pytest11"))
    arguments = [] if installed else ["-p", pytest_plugin.__name__]
    return pytester.runpytest_inprocess(
        "--strict-markers", "--strict-config", "-p", "no:cacheprovider", *arguments, *options
    )


def test_a_test_that_calls_what_its_mark_bans_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.ban("rpc:Server.info")
def test_banned():
    ask(Client(Medium))

@pytest.mark.ban("rpc:Server.info")
def test_banned_and_caught():
    try:
        ask(Client(Medium))
    except Exception:
        pass

@pytest.mark.ban("rpc:Repository.*", "vfs:*")
def test_others():
    ask(Client(Medium))

def test_without():
    ask(Client(Medium))
""",
    )
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["*Server.info is banned by the rule rpc:Server.info; called from *"])


def test_the_body_of_a_marked_test_is_one_operation(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.ban("duplicate")
def test_marked():
    client = Client(Medium)
    for _ in range(2):
        ask(client)

def test_of_all():
    client = Client(Medium)
    for _ in range(2):
        ask(client)
""",
        "hpss_bans = silly",
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*Server.info is banned by the rule duplicate: the same was answered before;*"])


def test_what_fixtures_do_fails_their_test_though_they_catch_the_error(pytester: pytest.Pytester) -> None:
    """Each time once: what is told of one test is not told of the next."""
    result = run(
        pytester,
        """
def caught(client):
    try:
        ask(client)
    except Exception:
        pass

@pytest.fixture(scope="module")
def client():
    return Client(Medium)

@pytest.fixture
def at_its_start(client):
    caught(client)

@pytest.fixture
def at_its_end(client):
    yield
    caught(client)

@pytest.fixture
def raising(client):
    ask(client)

@pytest.fixture(scope="module")
def of_all():
    client = Client(Medium)
    yield
    caught(client)

def test_start(at_its_start):
    pass

def test_end(at_its_end):
    pass

def test_both(at_its_start, at_its_end):
    raise AssertionError("never run")

def test_raising(raising):
    pass

def test_another(client):
    pass

def test_in_another(client):
    caught(client)

@pytest.mark.unbanned("to see")
def test_unbanned(client):
    caught(client)

def test_fails_by_itself(client):
    caught(client)
    raise AssertionError("for a reason of its own")

def test_last(of_all):
    pass
""",
        "hpss_bans = rpc:Server.info",
    )
    said = [line.split()[:2] for line in result.stdout.lines if line.startswith(("ERROR ", "FAILED "))]
    names = [(how, name.rpartition("::")[2]) for how, name in said]
    assert sorted(names) == [
        ("ERROR", "test_both"),
        ("ERROR", "test_both"),
        ("ERROR", "test_end"),
        ("ERROR", "test_last"),
        ("ERROR", "test_raising"),
        ("ERROR", "test_start"),
        ("FAILED", "test_fails_by_itself"),
        ("FAILED", "test_in_another"),
    ]
    result.assert_outcomes(errors=6, failed=2, passed=4)
    result.stdout.fnmatch_lines(["*for a reason of its own*"])


def test_commands_are_told_by_the_environment(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss")
    result = run(
        pytester,
        """
@pytest.mark.ban("vfs:*")
def test_it():
    assert os.environ["SMARTSERVER_DEBUG"] == "hpss,hpss-ban=silly,vfs:*"

@pytest.mark.unbanned("to see")
def test_after():
    assert os.environ["SMARTSERVER_DEBUG"] == "hpss"
""",
        "hpss_bans = silly",
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("ban()", "*expected @pytest.mark.ban(rule, ...), each a string"),
        ("ban(7)", "*expected @pytest.mark.ban(rule, ...), each a string"),
        ("ban(rule='vfs:*')", "*expected @pytest.mark.ban(rule, ...), each a string"),
        ("ban('rpc:Repository.pak')", "*the rule 'rpc:Repository.pak' matches no verb; near it: rpc:Repository.pack*"),
        ("unbanned()", "*expected @pytest.mark.unbanned(reason), a string"),
        ("unbanned(' ')", "*expected @pytest.mark.unbanned(reason), a string"),
    ],
)
def test_a_mark_that_says_nothing_fails_its_test(pytester: pytest.Pytester, mark: str, why: str) -> None:
    result = run(pytester, f"\n@pytest.mark.{mark}\ndef test_it():\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([why])


def test_it_is_offered_to_pytest() -> None:
    points = entry_points(group="pytest11")
    assert {("smartserver.pytest_plugin", "smartserver.pytest_plugin")} <= {(each.name, each.value) for each in points}


RECORD = f"""
COMMAND = {RECORDING!r}

@pytest.mark.parametrize("fails", [True, False])
def test_some(fails):
    subprocess.run([sys.executable, "-c", COMMAND], check=True)
    assert not fails

def test_that_runs_nothing():
    assert False
"""


def test_a_test_that_fails_keeps_its_trace_as_a_page_if_that_is_asked_for(pytester: pytest.Pytester) -> None:
    run(pytester, RECORD).assert_outcomes(failed=2, passed=1)
    assert not list(pytester.path.glob("**/*.html"))
    result = run(pytester, RECORD, "", "--hpss-trace", "pages")
    result.assert_outcomes(failed=2, passed=1)
    (page,) = (pytester.path / "pages").iterdir()
    assert page.name.endswith("-test_some-True-.html")
    assert "dream" in page.read_text()
    result.stdout.fnmatch_lines(["*- trace -*", str(page)])
