"""trace.bans over the file-level verbs as they are, in commands as they are shipped: each rule of the documents, what
it stops and what it lets pass.

No command does over files what `per-item` bans: it lets all of them pass, as the others do that fire in
`tests/unit/trace/bans`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.servers import HOST, Workspace, serving
from builders import MAIN, Far, History, push
from click.testing import CliRunner

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.unbanned("it bans by itself, and its baseline is file-level calls")]

COMMANDS = ("create", "push", "nothing", "pull", "stats", "verify", "pack", "list", "secret")

STOPS: dict[str, dict[str, str]] = {
    "vfs:*": dict.fromkeys(COMMANDS, ""),
    "vfs:*:*/log/*": dict.fromkeys(COMMANDS, "get_published"),
    "rpc:Repository.*": dict.fromkeys(("create", "push", "nothing", "pull"), "Repository.pull"),
    "*:*:secret/*": {"list": "", "secret": ""},
    "read-back": {"pack": "list_dir"},
    "per-item": {},
    "silly": {"pack": "", "verify": ""},
}
"""Rule -> the commands it stops, and the verb that is named."""


@dataclass
class Served:
    """A server of files, and a repository of five revisions on this disk."""

    folder: Path
    files: Path
    port: int
    history: History

    def make(self, path: str, revisions: int) -> None:
        """A repository on the server with so many of the revisions, a push each."""
        (self.files / path).parent.mkdir(exist_ok=True)
        repository = PackRepository(Far(LocalTransport(self.files)), path)
        for each in list(self.history.parents)[:revisions]:
            push(repository, self.history, [each], {MAIN: each})

    def words(self, name: str, number: str) -> list[str]:
        """A command, whose repository is there."""
        path = f"secret/{number}" if name == "secret" else number
        if name not in ("create", "list"):
            self.make(path, 3 if name == "push" else 5)
        above = f"vfs://{HOST}:{self.port}/"
        match name:
            case "create" | "push" | "nothing":
                return ["push", str(self.folder / "source"), above + path]
            case "pull":
                return ["pull", above + path, str(self.folder / number)]
            case "list":
                return ["list", f"{above}secret"]
            case "secret":
                return ["stats", above + path]
        return [name, above + path]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Workspace("bans") as work:
        files = work.folder / "served"
        files.mkdir()
        history = History()
        line = history.line(5)
        source = work.folder / "source"
        source.mkdir()
        push(PackRepository(LocalTransport(source)), history, line, {MAIN: line[-1]})
        options = ("--allow-vfs",)
        server = work.start("hpss", files, lambda host, port: serving(files, host, port, *options))
        made = Served(work.folder, files, server.port, history)
        for name in "abc":
            (files / "secret" / name).mkdir(parents=True)
        yield made


def test_where_no_repository_is(served: Served) -> None:
    """What it looks for to say what is there instead may be banned, too."""
    words = ["delete", "--yes", f"vfs://{HOST}:{served.port}/nowhere"]
    done = CliRunner().invoke(group, ["-Dhpss-ban=vfs:list_dir", *words])
    assert isinstance(done.exception, CommandError)
    assert "/nowhere: list_dir is banned by the rule vfs:list_dir; called from " in str(done.exception)


@pytest.mark.parametrize("rule", STOPS)
def test_what_it_stops(served: Served, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMARTSERVER_DEBUG", raising=False)
    for number, name in enumerate(COMMANDS):
        words = served.words(name, f"{list(STOPS).index(rule)}-{number}")
        done = CliRunner().invoke(group, [f"-Dhpss-ban={rule}", *words])
        said = f"{done.exception} {done.output if name == 'list' else ''}"  # It goes on with what is not banned.
        if name not in STOPS[rule]:
            assert (done.exit_code, done.exception) == (0, None), (name, said)
            continue
        verb = STOPS[rule][name]
        assert done.exit_code, name
        assert f"{verb} is banned by the rule {'' if rule == 'silly' else rule}" in said, (name, said)
        assert "; called from " in said
