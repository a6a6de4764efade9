"""server.hooks, hook_rules, push_checks, hook_process, hook_url: commands that are run before a change, and decide
on it; their output is bounded, a message is signed, and each has its time."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from access_rules import ADMIN
from builders import GIT, MAIN, SETTINGS
from dialogs import CREATE, Dialog, Lanes, Served, message, numbered
from memory_transport import MemoryTransport
from processes import is_alive
from scripts import script
from session_calls import BODY, CREATION, INSERT, PULL, code, refused, set_ref
from traced_memory import traced

from smartserver.errors import RefusedByHook
from smartserver.server.access import invoking_user
from smartserver.server.executor import Lane
from smartserver.server.hook_process import MOST_SAID, Ended, run_command
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hook_url import ReceiverFailed, post
from smartserver.server.hooks import Hooks
from smartserver.server.rules import AccessRules
from smartserver.server.verdicts import Verdicts
from smartserver.server.watched import UnusableFile
from smartserver.store.preview import Preview
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest, map_update
from smartserver.verbs.repository_create import CopyPart, CreateRequest, repository_create
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.rules import Rule
from smartserver.wire.events import Progress
from smartserver.wire.messages import PUSH_OPTIONS, Failure, Reply, decode_progress, raw
from transports.local import LocalTransport

SIDE = b"refs/heads/side"


def hook(*command: str, path: str = "**", limit: int = 30) -> Hook:
    return Hook(HookText(path, list(command), time_limit=limit))


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts of other tests are about requests of the same ids."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """A site in a folder, with a repository of three revisions."""
    (tmp_path / "root").mkdir()
    made = Served(LocalTransport(tmp_path / "root"))
    line = made.history.line(4)
    made.push(line[:3], {MAIN: line[2]})
    return made


def use(served: Served, *hooks: Hook) -> None:
    folder = served.site.root.local_folder()
    verdicts = None if folder is None else Verdicts(Path(folder).parent / "state" / "verdicts")
    served.site.hooks = Hooks(lambda: hooks, {"PATH": os.defpath}, verdicts)


def use_script(served: Served, folder: Path, text: str, limit: int = 30) -> None:
    use(served, hook(script(folder / "check", text), limit=limit))


Run = Callable[..., str]
Call = tuple[AnyVerb, Arguments]


def judged_by(served: Served, monkeypatch: pytest.MonkeyPatch, run: Run) -> list[object]:
    """Have a function judge in place of a command; the changes that it was told."""
    told: list[object] = []

    def judge(self: Hooks, hook: Hook, said: dict[str, object], *_: object) -> str:
        told.append(said["changes"])
        return run()

    use(served, hook("/check"))
    monkeypatch.setattr(Hooks, "run", judge)
    return told


def new_revision(served: Served, *, request: int = 1, age: int = 0, force: bool = False) -> Reply | Failure:
    """Push the fourth revision."""
    last = list(served.history.parents)[3]
    move = (branch_set_last_revision, SetLastRevisionRequest(MAIN, last, Rule.FORCE)) if force else set_ref(last)
    asked = message(INSERT, move, flags=BODY, request=numbered(request), age=age)
    return Dialog(served.site).ask(asked, served.history.body([last]), 1)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('before = ["/c"]', "Object missing required field `path` - at `hook 1`"),
        ('path = "x"\nbefore = []', "hook 1: expected at least one of `before`, `after` and `url`, and not"),
        (
            'path = "x"\nafter = ["/c"]\nurl = "http://x"',
            "hook 1: expected at least one of `before`, `after` and `url`, and not",
        ),
        ('path = "x"\nafter = ["c"]', "hook 1: after = ['c']: expected a program with its full path"),
        ('path = "x"\nurl = "ftp://x"', "hook 1: url = 'ftp://x': expected http:// or https://"),
        ('path = "x"\nbefore = ["check"]', "hook 1: before = ['check']: expected a program with its full path"),
        ('path = "x"\nbefore = ["/c"]\ntime-limit = 0', "hook 1: time-limit = 0: expected 1 to 3600 seconds"),
    ],
)
def test_a_hook_that_is_wrong_is_named(entry: str, why: str) -> None:
    with pytest.raises(UnusableFile) as wrong:
        AccessRules(f"{ADMIN}[[hooks]]\n{entry}\n".encode())
    assert why in str(wrong.value)


def test_which_hooks_are_about_a_path() -> None:
    rules = AccessRules(
        f"""{ADMIN}
        [[hooks]]
        path = "team/*"
        before = ["/one"]
        [[hooks]]
        path = "**"
        before = ["/two", "-x"]
        time-limit = 5
        """.encode()
    )
    hooks = Hooks(lambda: rules.hooks)
    assert [each.name for each in hooks.of("Team/a")] == ["one", "two"]
    assert [(each.before, each.time_limit) for each in hooks.of("other")] == [(("/two", "-x"), 5)]
    only = Hooks(lambda: rules.hooks[:1])
    assert only.may_concern("team/a/branch/file")
    assert not only.may_concern("team")
    assert not Hooks().may_concern("team/a")


def test_what_a_hook_is_told_and_says(served: Served, tmp_path: Path) -> None:
    use_script(served, tmp_path, f"cat > {tmp_path}/told; pwd; echo; printf ' no\\033 \\n'; exit 3")
    before = served.files()
    wrong = refused(new_revision(served))
    assert isinstance(wrong, RefusedByHook)
    assert wrong.hook == "check"
    assert wrong.why.endswith("; no\033")
    assert served.files() == before
    *_, third, fourth = (each.hex() for each in served.history.parents)
    assert json.loads((tmp_path / "told").read_text()) == {
        "path": "project",
        "vcs": "git sha1",
        "user": "tester",
        "request": numbered(1).hex(),
        "repository": "changed",
        "options": [],
        "changes": [{"ref": "refs/heads/main", "old": [third], "new": [fourth]}],
    }
    assert not Path(wrong.why.split(";")[0]).exists(), "its folder is removed"


def test_the_client_is_told_how_long_it_takes(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.server.hook_process.PULSE", 0.01)
    served.site.clock = time.monotonic
    use_script(served, tmp_path, "sleep 1.2")
    last = list(served.history.parents)[3]
    dialog = Dialog(served.site)
    assert code(dialog.ask(message(INSERT, set_ref(last), flags=BODY), served.history.body([last]), 1)) == "ok"
    told = [decode_progress(each.payload) for each in dialog.heard if isinstance(each, Progress)]
    assert ("hook check", 1, 30) in [(each.phase, each.done, each.total) for each in told]


def test_the_first_that_refuses_decides(served: Served, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    hooks = [hook(script(one / "check", "exit 0")), hook(script(two / "check", "echo second; exit 1"))]
    use(served, *hooks, hook("/nowhere/third"))
    assert str(refused(new_revision(served))) == "refused by the server's hook check: second"
    use(served, hook("/nowhere/third"))
    assert str(refused(new_revision(served, request=2))).endswith("it cannot be run: No such file or directory")


@pytest.mark.parametrize(
    ("end", "why"), [("wait", "it did not end within 1 s"), ("exit 5", "it ended with status 5")], ids=["hangs", "ends"]
)
def test_all_that_it_started_ends_with_it(served: Served, tmp_path: Path, end: str, why: str) -> None:
    child = tmp_path / "child"
    limit = 1 if end == "wait" else 30
    use_script(served, tmp_path, f"sleep 1000 & echo $! > {child}; {end}", limit)
    before = served.files()
    assert str(refused(new_revision(served))).endswith(why)
    pid = int(child.read_text())
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert served.files() == before


def test_deletions_are_judged_too(served: Served, tmp_path: Path) -> None:
    use_script(served, tmp_path, f'cat >> {tmp_path}/told; test -z "$SMARTSERVER_NEW" && echo gone; exit 1')
    tip = served.refs()[MAIN]
    served.push([], {SIDE: tip})
    branch = (branch_delete, BranchDeleteRequest(SIDE, tip))
    assert "it ended with status 1" in str(refused(Dialog(served.site).ask(message(branch))))
    whole = Dialog(served.site).ask(message((repository_delete, DeleteRequest()), request=numbered(2)))
    assert str(refused(whole)).endswith("gone")
    first, second = (json.loads(line) for line in (tmp_path / "told").read_text().splitlines())
    assert first["changes"] == [{"ref": "refs/heads/side", "old": [tip.hex()], "new": []}]
    assert (second["repository"], second["changes"]) == ("deleted", [])
    assert set(served.refs()) == {MAIN, SIDE}


def test_a_creation_is_judged_and_leaves_no_repository(served: Served, tmp_path: Path) -> None:
    use_script(served, tmp_path, f'cat > {tmp_path}/told; ls "$SMARTSERVER_NEW/packs" | wc -l; exit 1')
    (first, *_) = served.history.parents
    asked = message(CREATION, INSERT, set_ref(first), flags=BODY, path="new")
    assert str(refused(Dialog(served.site).ask(asked, served.history.body([first]), 1))).endswith(": 2")
    assert json.loads((tmp_path / "told").read_text())["repository"] == "created"
    assert not served.repository("new").exists()


def copied(served: Served, part: CopyPart, tip: bytes, number: int, *calls: Call) -> Reply | Failure:
    create = (repository_create, CreateRequest(GIT, CREATE.kinds, SETTINGS, part=part))
    asked = message(create, INSERT, *calls, flags=BODY, path="copy", request=numbered(number))
    return Dialog(served.site).ask(asked, served.history.body([tip]), 1)


def test_a_copy_in_parts_is_judged_with_its_last(served: Served, tmp_path: Path) -> None:
    """Nobody sees it before. All that it made is told then."""
    use_script(served, tmp_path, f"cat >> {tmp_path}/told")
    first, second, *_ = served.history.parents
    note = (map_update, MapUpdateRequest("notes", MapKind.OPAQUE, [EntryChange(b"key", b"text")]))
    assert code(copied(served, CopyPart.MORE, first, 5, set_ref(first, SIDE), note)) == "ok"
    assert not (tmp_path / "told").exists()
    assert code(copied(served, CopyPart.LAST, second, 6, set_ref(second))) == "ok"
    told = json.loads((tmp_path / "told").read_text())
    assert told["repository"] == "created"
    assert told["changes"] == [
        {"ref": MAIN.decode(), "old": [], "new": [second.hex()]},
        {"ref": SIDE.decode(), "old": [], "new": [first.hex()]},
        {"map": "notes", "key": "key", "old": None, "new": "text"},
        {"setting": "HEAD", "old": None, "new": "refs/heads/main"},
    ]


def test_a_copy_is_judged_again_with_what_came_meanwhile(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = served.history.parents

    def run() -> str:
        if len(told) == 1:
            assert code(copied(served, CopyPart.MORE, first, 6, set_ref(first, SIDE))) == "ok"
        return ""

    told = judged_by(served, monkeypatch, run)
    assert code(copied(served, CopyPart.MORE, first, 5)) == "ok"
    assert code(copied(served, CopyPart.LAST, second, 7, set_ref(second))) == "ok"
    refs = [[change["ref"] for change in changes if "ref" in change] for changes in told]  # type: ignore[attr-defined]
    assert refs == [[MAIN.decode()], [MAIN.decode(), SIDE.decode()]]


def test_what_changes_nothing_is_not_judged(served: Served) -> None:
    use(served, hook("/nowhere/check"))
    assert code(Dialog(served.site).ask(message(set_ref(served.refs()[MAIN])))) == "ok"
    assert code(Dialog(served.site).ask(message(PULL))) == "ok"


def test_content_that_no_ref_reaches_is_judged(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could be fetched by its id."""
    told = judged_by(served, monkeypatch, lambda: "no")
    last = list(served.history.parents)[3]
    asked = message(INSERT, flags=BODY)
    assert code(Dialog(served.site).ask(asked, served.history.body([last]), 1)) == "hook-refused"
    assert told == [[]]
    assert served.repository().snapshot().ordinal(last) is None


def test_a_store_in_no_folder_has_no_hooks() -> None:
    served = Served(MemoryTransport())
    line = served.history.line(2)
    served.push(line[:1], {MAIN: line[0]})
    use(served, hook("/bin/true"))
    asked = message(INSERT, set_ref(line[1]), flags=BODY)
    said = str(refused(Dialog(served.site).ask(asked, served.history.body(line[1:]), 1)))
    why = "it needs a repository in a folder of the server's machine, or in a bucket"
    assert said == f"refused by the server's hook true: {why}"


def test_where_its_ref_moved_meanwhile_it_is_judged_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not judged again where another ref moved."""
    ids = list(served.history.parents)
    moves = [{MAIN: ids[0]}, {SIDE: ids[1]}, {}]

    def run() -> str:
        served.push([], moves.pop(0))  # type: ignore[arg-type]
        return ""

    told = judged_by(served, monkeypatch, run)
    assert code(new_revision(served, force=True)) == "ok"
    (last,) = moves
    olds = [each[0]["old"] for each in told]  # type: ignore[index]
    assert olds == [[ids[2].hex()], [ids[0].hex()]]
    assert served.refs() == {MAIN: ids[3], SIDE: ids[1]}
    assert last == {}


def test_what_landed_meanwhile_is_shown_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revision of the push lands on another ref while the hook runs, and its own ref moves: it is cut out of what
    came before the hook looks again."""
    ids = list(served.history.parents)
    seen: list[tuple[int, int]] = []

    def judge(self: Hooks, hook: Hook, said: object, preview: Preview, *_: object) -> str:
        if not seen:
            served.push([ids[3]], {SIDE: ids[3], MAIN: ids[0]})
        shown = preview.snapshot
        seen.append((shown.graph.count, sum(pack.index.segments for pack in shown.packs)))
        return ""

    use(served, hook("/check"))
    monkeypatch.setattr(Hooks, "run", judge)
    assert code(new_revision(served, force=True)) == "ok"
    assert seen == [(4, 4), (4, 4)]
    assert served.refs() == {MAIN: ids[3], SIDE: ids[3]}


def test_a_push_that_diverged_meanwhile_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    other = served.history.commit({"other": b"x\n"}, list(served.history.parents)[2:3])
    told = judged_by(served, monkeypatch, lambda: (served.push([other], {MAIN: other}), "")[1])  # type: ignore[func-returns-value]
    assert code(new_revision(served)) == "refused"
    assert len(told) == 1
    assert served.refs() == {MAIN: other}


@pytest.mark.parametrize("why", ["", "no"])
def test_a_repeated_request_waits_for_the_verdict(served: Served, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The client repeats it on another connection while the hook runs, and once more afterwards."""
    begun, go_on = threading.Event(), threading.Event()

    def run() -> str:
        begun.set()
        assert go_on.wait(60)
        return why

    told = judged_by(served, monkeypatch, run)
    answers: list[Reply | Failure] = []
    threads = [threading.Thread(target=lambda age=age: answers.append(new_revision(served, age=age))) for age in (0, 1)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    answers.append(new_revision(served, age=1))
    assert len(told) == 1
    assert [code(each) for each in answers] == ["hook-refused" if why else "ok"] * 3
    assert list((Path(str(served.site.root.local_folder())) / "project" / "incoming").iterdir()) == []


def test_a_verdict_is_that_of_all_processes_of_the_account(tmp_path: Path) -> None:
    """It counts for the same changes, and for a day."""
    ran: list[bytes] = []

    def judge(request: bytes, digest: bytes = b"d", *, folder: Path = tmp_path / "verdicts") -> None:
        hooks = Hooks(verdicts=Verdicts(folder))
        hooks.judge(request, digest, [hook("/c")], lambda each: ran.append(request) or "")  # type: ignore[func-returns-value]

    for request in (b"1", b"2", b"1"):
        judge(request)
    assert ran == [b"1", b"2"]
    judge(b"2", b"other")
    assert ran[2:] == [b"2"]
    for file in (tmp_path / "verdicts").iterdir():
        os.utime(file, (1, 1))
    judge(b"3")
    assert os.listdir(tmp_path / "verdicts") == [b"3".hex()]
    (tmp_path / "verdicts" / b"4".hex()).write_bytes(b"torn")
    judge(b"4")
    assert ran[3:] == [b"3", b"4"]
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(
        RefusedByHook,
        match=r"c: its verdict cannot be stored: .*/open must be a folder that only this account owns and can open",
    ):
        judge(b"5", folder=tmp_path / "open")
    assert len(ran) == 5


def test_a_verdict_is_about_the_content_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """And about the user and the push options: with others it is another request."""
    said = ["no", "no", "no", ""]
    told = judged_by(served, monkeypatch, lambda: said.pop(0))
    last = list(served.history.parents)[3]

    def ask(user: str, body: list[bytes], *options: str) -> str:
        asked = message(INSERT, set_ref(last), flags=BODY, age=1)
        asked = msgspec.structs.replace(asked, extras={PUSH_OPTIONS: raw(options)})
        return code(Dialog(served.site, invoking_user(user)).ask(asked, served.history.body(body), len(body)))

    assert ask("anna", [last]) == "hook-refused"
    assert ask("anna", [last]) == "hook-refused"
    assert len(told) == 1
    assert ask("ben", [last]) == "hook-refused"
    assert ask("anna", [last], "ci.skip") == "hook-refused"
    other = served.history.commit({"more": b"x\n"}, (last,))
    assert ask("anna", [last, other]) == "ok"
    assert len(told) == 4


def test_a_change_with_hooks_keeps_no_other_waiting(served: Served) -> None:
    """It runs in a lane of its own, which has a bounded number of threads."""

    def lanes(path: str, hooks: Sequence[Hook]) -> list[Lane]:
        use(served, *hooks)
        executor = Lanes()
        dialog = Dialog(served.site, executor=executor)
        dialog.begin(message(set_ref(served.refs()[MAIN]), path=path))
        executor.run_all()
        return executor.lanes

    assert lanes("project", [hook("/nowhere", path="project")]) == [Lane.HOOK]
    assert lanes("project", [hook("/nowhere", path="other")]) == [Lane.COMMIT]
    assert lanes("project", []) == [Lane.COMMIT]


def test_a_push_to_be_refused_for_its_history_is_not_judged(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    told = judged_by(served, monkeypatch, lambda: "")
    ids = list(served.history.parents)
    assert code(Dialog(served.site).ask(message(set_ref(ids[0])))) == "diverged"
    assert told == []


def run(place: Path, text: str) -> Ended:
    return run_command(["/bin/sh", "-c", text], {}, {"PATH": os.defpath}, place, 60)


def test_the_beginning_of_its_output_is_told(tmp_path: Path) -> None:
    """The rest is counted, and neither in memory nor on the disk."""
    size = 20_000_000
    place = tmp_path / "tmp"
    with traced() as memory:
        ended = run(place, f"head -c {size} /dev/zero | tr '\\0' x; ls; exit 1")
    assert ended.why == f"{'x' * MOST_SAID}; and {size + 3 - MOST_SAID:,} bytes more"
    assert memory.peak < 1_000_000
    assert os.listdir(place) == ["in"]  # As the command saw, which took three bytes of its output.


def test_one_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    assert run(tmp_path, "echo one; echo; exec >&- 2>&-; sleep 0.1; touch later; exit 3").why == "one"
    assert (tmp_path / "later").exists()


def test_a_process_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    """It has the output open."""
    apart = "setsid sh -c 'touch gone; exec sleep 1000' & while ! [ -e gone ]; do sleep 0.01; done"
    ended = run(tmp_path, f"{apart}; echo $!; exit 1")
    os.kill(int(ended.why), signal.SIGKILL)


PATIENCE = 60


class _Http(BaseHTTPRequestHandler):
    status = 200
    heard: list[tuple[bytes, str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((body, self.headers["X-Smartserver-Signature"] or "", self.headers["Content-Type"]))
        self.send_response(self.status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http() -> Iterator[tuple[str, type[_Http]]]:
    class Handler(_Http):
        heard: list[tuple[bytes, str, str]] = []

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/pushed", Handler
        server.shutdown()
        thread.join()


def test_a_url_gets_a_signed_post(http: tuple[str, type[_Http]]) -> None:
    url, handler = http
    post(url, b"one", "of both", 60)
    post(url + "?a=b", b"two", "", 60)
    (body, signature, kind), (_, unsigned, _) = handler.heard
    assert body == b"one"
    assert signature == "sha256=" + hmac.new(b"of both", body, hashlib.sha256).hexdigest()
    assert (kind, unsigned) == ("application/json", "")


@pytest.mark.parametrize("status", [301, 404, 500])
def test_a_url_that_does_not_take_it(http: tuple[str, type[_Http]], status: int) -> None:
    url, handler = http
    handler.status = status
    with pytest.raises(ReceiverFailed, match=f"it answered with status {status}"):
        post(url, b"{}", "", 60)


@contextlib.contextmanager
def dripping(begins: bytes) -> Iterator[str]:
    """The place of a server whose answer begins so, and goes on byte by byte until its reader leaves."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begins)
                while not threading.Event().wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_url_that_answers_no_http() -> None:
    with (
        dripping(b"220 mail.example.org\r\n") as place,
        pytest.raises(ReceiverFailed, match="it answered no HTTP: BadStatusLine"),
    ):
        post(f"http://{place}", b"{}", "", 60)


def test_a_url_whose_answer_does_not_end() -> None:
    """Its status is all that counts."""
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n") as place:
        post(f"http://{place}", b"{}", "", 60)


def test_dead_addresses_leave_time_for_the_next(http: tuple[str, type[_Http]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share of what is left."""
    url, handler = http
    dead, now, limits = ("192.0.2.1", 80), 100.0, list[float | None]()

    class Socket(socket.socket):
        def connect(self, place: Any) -> None:
            nonlocal now
            limit = self.gettimeout()
            limits.append(limit)
            if place == dead:
                now += limit or 0
                raise TimeoutError
            super().connect(place)

    places = [dead, dead, ("127.0.0.1", urlsplit(url).port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr("smartserver.server.hook_url.time.monotonic", lambda: now)
    post(url, b"{}", "", 60)
    assert len(handler.heard) == 1
    assert limits == [20, 20, 20]


@pytest.mark.parametrize(
    ("scheme", "begins"), [("http", b"HTTP/1.1 200 OK\r\nX: "), ("http", b""), ("https", b"\x16\x03\x03\x40\x00")]
)
def test_a_url_that_answers_byte_by_byte(scheme: str, begins: bytes) -> None:
    """Each read succeeds: the status, or the greeting of TLS, never ends."""
    with (
        dripping(begins) as place,
        pytest.raises(ReceiverFailed, match=r"^it did not answer within 0.3 s$"),
    ):
        post(f"{scheme}://{place}/", b"{}", "", 0.3)


@pytest.mark.parametrize(("port", "why"), [("1", "Connection refused"), ("x", "Port could not be cast")])
def test_a_url_that_nobody_can_reach(port: str, why: str) -> None:
    with pytest.raises(ReceiverFailed, match=why):
        post(f"http://127.0.0.1:{port}/", b"{}", "", 60)
