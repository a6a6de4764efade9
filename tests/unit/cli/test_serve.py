"""cli.serve, serve_options, serve_run, process, config_file: where it listens, what is refused early, how it ends."""

from __future__ import annotations

import base64
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
import pytest
from cli_runs import run, why
from memory_transport import MemoryTransport
from twisted.internet.task import Clock

from smartserver.cli import serve, serve_options, serve_run
from smartserver.cli.config_file import OTHERS
from smartserver.cli.errors import CommandError, UsageConflict
from smartserver.cli.place import open_store
from smartserver.cli.serve_options import GROUPS, ServeOptions, parse_listen
from smartserver.cli.user import user
from smartserver.client.call import Client
from smartserver.client.media.pipe import PipeMedium
from smartserver.client.medium import CannotConnect
from smartserver.client.url import DEFAULT_PORT
from smartserver.errors import AccessDenied, Banned, InvalidPath
from smartserver.server.connections import Connections
from smartserver.server.executor import InlineExecutor
from smartserver.server.rules import PublicKey
from smartserver.server.site import Site
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.verbs.vfs import PathRequest, has

OPTIONS = [each for each in serve.command.params if isinstance(each, click.Option) and each.name != "config"]

VALUES = {
    "listen": '"127.0.0.1:9"', "http": '":8"', "tls": '"a.pem"', "tls_key": '"a.key"', "require_tls": "true",
    "stdio": "true", "anonymous": '"write"', "access": '"a.toml"', "name": '"anna"', "key": '"SHA256:x"',
    "no_create": "true", "allow_vfs": "true", "max_connections": "7", "max_per_address": "5", "idle_timeout": "9",
    "rules": '["rpc:*"]', "fsck": '"off"', "ignored": '["badDate"]', "fast_open": "true", "log_place": '"l"',
    "access_log": '"a"', "metrics": '":8"', "metrics_public": "true", "memory_cache_size": "64", "cache_dir": '"d"',
    "cache_size": "3", "git_cache_size": "4", "workers": "2", "memcached": '"m"', "shared_cache": "0",
    "compression": "4", "slow": "50", "verbose": "true",
}  # fmt: skip
"""A value of each option, none its default."""


def key(option: click.Option) -> str:
    return max(option.opts, key=len).removeprefix("--")


def parsed(*words: str) -> ServeOptions:
    with serve.command.make_context("serve", list(words)) as ctx:
        return ServeOptions(**ctx.params)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "serve.toml"


def test_every_option_has_its_key(file: Path) -> None:
    file.write_text("".join(f"{key(each)} = {VALUES[each.name or '']}\n" for each in OPTIONS))
    found, default = parsed("/srv", "--config", str(file)), parsed("/srv")
    alike = [each.name for each in OPTIONS if getattr(found, each.name or "") == getattr(default, each.name or "")]
    assert alike == []
    assert (found.workers, found.compression, found.ignored, found.cache_dir) == (2, "4", ("badDate",), Path("d"))


def test_the_command_line_wins(file: Path) -> None:
    file.write_text('workers = 3\nlisten = ":1"\nfsck-ignore = ["badDate"]\n')
    for words in (["--workers", "4", "--config", str(file)], ["--config", str(file), "--workers", "4"]):
        found = parsed("/srv", *words)
        assert (found.workers, found.listen, found.ignored, found.slow) == (4, ":1", ("badDate",), None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("wrkers = 2", "unknown key 'wrkers': did you mean workers?"),
        ("[serve]\nworkers = 2", "[serve] is a table: write the options without it, as workers = ..."),
        ('root = "/srv"', "'root' is not an option: give ROOT on the command line, as serve ROOT --config FILE"),
        ('config = "x"', "unknown key 'config': "),
        ("folder = 2", "unknown key 'folder': "),
        ('workers = "2"', "workers: expected a whole number, got '2'"),
        ("workers = true", "workers: expected a whole number, got True"),
        ("workers = 65", "workers: 65 is not in the range 1<=x<=64."),
        ("verbose = 1", "verbose: expected true or false, got 1"),
        ("listen = []", "listen: expected a string, got []"),
        ('ban = "rpc:*"', "ban: expected an array of strings, got 'rpc:*'"),
        ('fsck = "much"', "fsck: 'much' is not one of "),
        ("workers = ", "not valid TOML: Invalid value (at "),
        ('compression = "best"', "compression 'best': expected auto, or a level of 0 to 19"),
        ('metrics = "0.0.0.0:9155"', "metrics 0.0.0.0:9155: other machines can connect to that address"),
        ('ban = ["rpc"]', "ban: no such rule: 'rpc'"),
        ("cache-size = 4", "cache-size is for a bucket that is served"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file_and_the_key(file: Path, content: str, said: str) -> None:
    file.write_text(content)
    wrong = why(run("serve", file.parent, "--config", file))
    assert wrong.startswith(f"{file}: {said}")
    assert "\n" not in wrong


def test_what_is_not_the_file_s_fault(file: Path) -> None:
    assert why(run("serve", file.parent, "--config", file)) == f"{file}: No such file or directory"
    file.write_text('compression = "9"\n')
    wrong = run("serve", file.parent, "--config", file, "--compression", "best")
    assert why(wrong) == "--compression 'best': expected auto, or a level of 0 to 19"


def test_the_help_has_each_option_in_one_group() -> None:
    text = serve.command.get_help(click.Context(serve.command, info_name="serve"))
    titles = [*GROUPS, OTHERS]
    places = [text.index(f"{title}:\n") for title in titles]
    assert places == sorted(places)
    for option in OPTIONS:
        (title,) = [title for title, names in GROUPS.items() if option.name in names]
        at = titles.index(title)
        assert option.opts[-1] in text[places[at] : places[at + 1]]
    assert "--config FILE" in text[places[-1] :]


PATIENCE = 60
"""Seconds after which something hangs; nothing waits for it otherwise."""


SERVE = (sys.executable, "-m", "smartserver.cli.main", "serve")


def start(*arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, *SERVE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("127.0.0.1:4155", ("127.0.0.1", 4155)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("localhost:65535", ("localhost", 65535)),
        (":8000", ("127.0.0.1", 8000)),
        (":0", ("127.0.0.1", 0)),
        ("example.org", ("example.org", DEFAULT_PORT)),
        ("[::1]:7", ("::1", 7)),
        ("[::1]", ("::1", DEFAULT_PORT)),
    ],
)
def test_where_to_listen(text: str, where: tuple[str, int]) -> None:
    assert parse_listen(text) == where


@pytest.mark.parametrize("text", ["h:", "h:-1", "h:65536", "h:http", "h:\uff14", "[::1]:", "[::1]:x"])
def test_where_nobody_can_listen(text: str) -> None:
    with pytest.raises(CommandError, match="expected HOST:PORT with a port of 0 to 65535") as caught:
        parse_listen(text)
    assert repr(text) in str(caught.value)


REFUSED = [
    (1, "{0}/absent", "{0}/absent is not a folder: create it, or give another"),
    (1, "{0}/file", "{0}/file is not a folder: create it, or give another"),
    (1, "file://{0}/absent", "{0}/absent is not a folder"),
    (1, "file://another/srv", "'file://another/srv' is not a folder of this machine"),
    (1, "vfs://host/x", "vfs://host/x is on another machine: it can be served with --stdio only"),
    (2, "{0} --metrics [::]:9155", "--metrics [::]:9155: other machines can connect to that address"),
    (2, "{0} --metrics example.org:9155", "--metrics example.org:9155: other machines can connect to that address"),
    (2, "{0} --metrics-public", "--metrics-public needs --metrics HOST:PORT"),
    (1, "{0} --metrics 127.0.0.1", "--metrics '127.0.0.1': expected HOST:PORT with a port of 0 to 65535"),
    (1, "{0} --metrics 9155", "--metrics '9155': expected HOST:PORT; for that port alone write :9155"),
    *[
        (1, f"{{0}} --compression '{text}'", f"--compression {text!r}: expected auto, or a level of 0 to 19")
        for text in ("20", "-1", "best", "", "\uff13")
    ],
    (
        1,
        "{0} --ban vfs:* --ban silly",
        "--ban: 'silly' are behaviours of a client, which bans by -Dhpss-ban=silly; a server bans calls by name",
    ),
    (
        1,
        "{0} --ban rpc:Repository.pak",
        "--ban: the rule 'rpc:Repository.pak' matches no verb; near it: rpc:Repository.pack",
    ),
    (1, "{0} --log {0}/no/log", "--log {0}/no/log: {0}/no/log: No such file or directory"),
    (2, "{0} --require-tls", "--require-tls needs --tls CERTIFICATE or --tls auto"),
    (2, "{0} --tls-key x", "--tls-key needs --tls CERTIFICATE or --tls auto"),
    *[(2, f"{{0}} --tls {words}", "--tls CERTIFICATE needs --tls-key FILE") for words in ("x", "auto --tls-key x")],
    (1, "{0} --tls {0}/absent --tls-key {0}/file", "--tls: {0}/absent: No such file or directory"),
    (2, "{0} --user anna", "--user names a user of an access file"),
    (2, "{0} --access FILE --anonymous read", "--anonymous has no effect with --access"),
    (2, "{0} --access FILE --allow-vfs", "--allow-vfs cannot be used with --access"),
    (2, "{0} --access FILE --user anna", "--user is for --stdio"),
    (2, "{0} --access FILE --stdio --key SHA256:x", "--key needs --user NAME"),
    (2, "{0} --access FILE --stdio --user 'an na'", "--user 'an na': use letters"),
    (2, "{0} --cache-dir FOLDER", "--cache-dir is for a bucket that is served"),
    (2, "{0} --cache-size 10", "--cache-size is for a bucket that is served"),
    (2, "{0} --git-cache-size 10", "--git-cache-size needs --http HOST:PORT, or --stdio"),
]
"""Exit statuses, words of `serve`, and the beginnings of what is said."""


@pytest.mark.parametrize(("status", "words", "said"), REFUSED)
def test_what_is_refused_before_anything_starts(tmp_path: Path, status: int, words: str, said: str) -> None:
    (tmp_path / "file").touch()
    result = run("serve", *shlex.split(words.format(tmp_path)))
    assert why(result).startswith(said.format(tmp_path))
    assert isinstance(result.exception, CommandError)
    assert result.exception.status == status


def test_what_is_compressed_for_whom() -> None:
    for text, local, remote in [("auto", 0, 3), ("0", 0, 0), ("19", 19, 19)]:
        site = Site(MemoryTransport(), compression=serve_options.level_of(text))
        assert (site.level_for(is_local=True), site.level_for(is_local=False)) == (local, remote)


@pytest.mark.sockets
@pytest.mark.parametrize(
    "words", ["--listen PLACE", "--workers 2 --listen PLACE", "--listen 127.0.0.1:0 --metrics PLACE"]
)
def test_a_port_that_is_taken(tmp_path: Path, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start(str(tmp_path), *words.replace("PLACE", place).split())
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err == f"smartserver: cannot listen on {place}: Address already in use\n"


@pytest.mark.sockets
def test_it_says_where_it_serves_and_ends_when_told(tmp_path: Path) -> None:
    """Also by the end of its terminal, and where a file says what users may do."""
    (tmp_path / "serve.toml").write_text('anonymous = "write"\n')
    process = start(str(tmp_path), "--listen", "127.0.0.1:0", "--config", str(tmp_path / "serve.toml"))
    assert process.stderr is not None
    first = process.stderr.readline()
    found = re.fullmatch(
        rf"serving {re.escape(str(tmp_path))} on hpss://127\.0\.0\.1:(\d+)/ \(anonymous users: write\)\n", first
    )
    assert found, first
    socket.create_connection(("127.0.0.1", int(found[1])), PATIENCE).close()
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.sockets
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(tmp_path: Path, number: signal.Signals) -> None:
    ignoring = ["sh", "-c", f"trap '' {number.name[3:]}; exec \"$@\"", "sh"]
    process = start(str(tmp_path), "--listen", "127.0.0.1:0", before=ignoring)
    assert process.stderr is not None
    process.stderr.readline()
    with open(f"/proc/{process.pid}/status") as status:
        (mask,) = [int(line.split()[1], 16) for line in status if line.startswith("SigIgn:")]
    assert mask >> (number - 1) & 1
    process.send_signal(signal.SIGTERM if number is not signal.SIGTERM else signal.SIGHUP)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_folder_in_which_nothing_can_be_made_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)

    def refuse(*_: object) -> None:
        raise CommandError("enough")

    monkeypatch.setattr(serve_run, "use_one_heap", refuse)
    said = f"{tmp_path} cannot be written to by user {user()}: no repository can be made in it\n"
    for options, expected in (
        (["--anonymous", "write"], said),
        (["--stdio"], said),
        (["--stdio", "--anonymous", "read"], ""),
        (["--stdio", "--anonymous", "write"], said),
        ([], ""),
        (["--anonymous", "write", "--no-create"], ""),
    ):
        assert run("serve", tmp_path, *options).output == expected


@pytest.mark.unbanned("it bans by itself")
@pytest.mark.parametrize("by_flag", [True, False])
def test_flags_hold_for_the_files_of_a_server(monkeypatch: pytest.MonkeyPatch, by_flag: bool) -> None:
    """The call is not sent: nobody answers here."""
    ban = "hpss-ban=vfs:*"
    monkeypatch.setenv("SMARTSERVER_DEBUG", "" if by_flag else ban)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        store = open_store(f"vfs://127.0.0.1:{listening.getsockname()[1]}/", {ban} if by_flag else frozenset())
        with pytest.raises(Banned, match=r"has is banned by the rule vfs:\*"):
            store.exists("a")


@pytest.mark.sockets
def test_a_folder_by_its_url_is_that_folder_and_no_link_leads_out_of_it(tmp_path: Path) -> None:
    served, elsewhere = tmp_path / "served", tmp_path / "elsewhere"
    served.mkdir()
    elsewhere.mkdir()
    (served / "out").symlink_to(elsewhere)
    command = [*SERVE, "--stdio", "--", served.as_uri()]
    with Client(lambda: PipeMedium(command)) as client, pytest.raises(InvalidPath, match="leads out of"):
        client.call(repository_stats, StatsRequest(), "out")


def test_what_is_banned(tmp_path: Path) -> None:
    banned = serve_options.banned_by(("rpc:Server.*:team/*", "vfs:*"))
    calls = [(server_ping, PingRequest())]
    refused = banned("team/project", calls)
    assert refused is not None
    assert str(refused) == "Server.ping is banned by the rule rpc:Server.*:team/*"
    assert banned("other", calls) is None
    assert serve_options.banned_by(())("team/project", calls) is None


def on_streams(root: Path, *options: str, environment: Mapping[str, str] | None = None) -> Client:
    command = [*SERVE, str(root), "--stdio", *options]
    return Client(lambda: PipeMedium(command, {**os.environ, **(environment or {})}))


CREATION = CreateRequest("git sha1", [KindField("object", "git-sha1", True)])


@pytest.mark.sockets
def test_the_other_options_hold_on_standard_input(tmp_path: Path) -> None:
    with on_streams(tmp_path, "--no-create") as client, pytest.raises(AccessDenied, match="--no-create"):
        client.call(repository_create, CREATION, "new")
    with on_streams(tmp_path, "--ban", "rpc:Server.*") as client, pytest.raises(Banned):
        client.call(server_ping, PingRequest())
    with on_streams(tmp_path) as client:
        client.call(repository_create, CREATION, "new")
        with pytest.raises(AccessDenied, match="--allow-vfs"):
            client.call(has, PathRequest("new"))
    with on_streams(tmp_path, "--allow-vfs") as client:
        assert client.call(has, PathRequest("new")).found


@pytest.mark.sockets
def test_a_silent_client_on_standard_input_is_dropped_after_its_time(tmp_path: Path) -> None:
    command = [*SERVE, str(tmp_path), "--stdio", "--idle-timeout", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hpss/1\n" + bytes([0, 0, 0, 99]))  # The beginning of a frame.
        process.stdin.flush()
        said = b""
        while not said.endswith(b" s"):
            said += os.read(process.stdout.fileno(), 1024) or b", and then it ended after 0 s"
        _, log = process.communicate(timeout=PATIENCE)
    assert re.search(rb"nothing of the rest of a request came for \d+ s$", said), said
    assert b"dropped" in log


@pytest.mark.parametrize(
    "words",
    [
        "--listen 127.0.0.1:4155", "--max-connections 512", "--max-per-address 9", "--fast-open",
        "--metrics 127.0.0.1:9155", "--metrics-public", "--access-log -", "--access-log json:-",
        "--allow-vfs --anonymous read",
    ],
)  # fmt: skip
def test_an_option_that_standard_input_cannot_obey_is_refused(tmp_path: Path, words: str) -> None:
    """Also one that is given its own default."""
    options = words.split()
    for order in ([*options, "--stdio"], ["--stdio", *options]):
        result = run("serve", tmp_path, *order)
        assert isinstance(result.exception, UsageConflict)
        assert str(result.exception).startswith(f"{options[0]} ")
        assert "--stdio" in str(result.exception)


def test_health_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "smartserver.server.metrics", None)
    site = Site(MemoryTransport())
    clock = cast("Any", Clock())
    assert serve_run.metrics_pages(site, Connections(site, InlineExecutor(), clock), None, clock) == {}


@pytest.mark.sockets
def test_an_access_log_on_standard_input_is_of_all_servers_of_its_file(tmp_path: Path) -> None:
    """Several servers write it where sshd starts one for each client."""
    file = tmp_path / "requests"
    for name in ("one", "two"):
        options = ("--access-log", str(file), "--access", str(tmp_path / "access.toml"), "--user", name)
        (tmp_path / "access.toml").write_text('[[rules]]\nwho = ["one", "two"]\npath = "**"\nmay = "admin"\n')
        with on_streams(tmp_path, *options) as client:
            client.call(repository_create, CREATION, name)
    first, second = file.read_text().splitlines()
    for name, line in (("one", first), ("two", second)):
        assert f' user={name} from="{name} on standard input" path={name} verbs=Repository.create ' in line
        assert line.endswith(" outcome=done")


def test_every_option_is_either_obeyed_on_standard_input_or_refused() -> None:
    """A new option of `serve` is to be put into one of these lists, with a test of it."""
    obeyed = {"root", "stdio", "anonymous", "no_create", "config", "allow_vfs", "idle_timeout", "rules"}
    obeyed |= {"fsck", "ignored", "access", "name", "key", "log_place", "access_log", "slow"}
    obeyed |= {"memory_cache_size", "compression", "cache_dir", "git_cache_size"}
    assert {each.name for each in serve.command.params} == obeyed | {"verbose"} | set(serve_options.FOR_TCP)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        # The paths of a client that asks for another folder would lead to other places in this one.
        *[
            (f"smartserver serve {folder} --stdio", f"{folder} is not served: this login serves only one folder")
            for folder in ("/srv", "..", "../other", "served/inner")
        ],
        *[
            (asked, f"it does not run {asked!r}")
            for asked in ("git archive --remote=x", "git-upload-pack 'x", "hg -R x serve --stdio", "rm -rf /")
        ],
    ],
)
def test_a_client_that_asks_sshd_for_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    served = tmp_path / "served"
    (served / "inner").mkdir(parents=True)
    monkeypatch.setenv("SSH_ORIGINAL_COMMAND", asked)
    result = run("serve", served, "--stdio")
    assert isinstance(result.exception, UsageConflict)
    assert said in str(result.exception)


@pytest.mark.sockets
def test_who_is_refused_by_a_server_that_a_client_started_is_told_its_status(tmp_path: Path) -> None:
    client = on_streams(tmp_path, environment={"SSH_ORIGINAL_COMMAND": "smartserver serve /srv --stdio"})
    with client, pytest.raises(CannotConnect, match="status 2"):
        client.call(repository_stats, StatsRequest(), "inner")


@pytest.mark.sockets
@pytest.mark.parametrize("asked", ["smartserver serve . --stdio", "/opt/bin/smartserver serve {} --stdio"])
def test_a_client_that_asks_sshd_for_this_folder_or_its_home_is_served(tmp_path: Path, asked: str) -> None:
    environment = {"SSH_ORIGINAL_COMMAND": asked.format(shlex.quote(str(tmp_path)))}
    with on_streams(tmp_path, environment=environment) as client:
        client.call(repository_create, CREATION, "project")
    assert (tmp_path / "project" / "format").exists()


@pytest.mark.sockets
def test_a_user_of_an_access_file_on_standard_input(tmp_path: Path) -> None:
    """The server runs as the forced command of a key. The changes are in the log, and nothing is on the client's
    standard error."""
    served, rules, log = tmp_path / "served", tmp_path / "access.toml", tmp_path / "log"
    served.mkdir()
    key = PublicKey("anna", "ssh-ed25519", base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode())
    keys = f'[keys]\nanna = ["{key.kind} {key.content}"]\n'
    allowed = '[[rules]]\nwho = ["anna"]\npath = "team/**"\nmay = "create"\n'
    rules.write_text(keys + allowed)
    options = ("--access", str(rules), "--log", str(log))
    there = {"SSH_CONNECTION": "2001:db8::7 50398 192.0.2.1 22"}
    with on_streams(served, *options, "--user", "anna", "--key", key.fingerprint, environment=there) as client:
        client.call(repository_create, CREATION, "team/new")
        with pytest.raises(AccessDenied):
            client.call(repository_create, CREATION, "other")
        with pytest.raises(AccessDenied):
            client.call(repository_delete, DeleteRequest(), "team/new")
        rules.write_text(allowed)
        with pytest.raises(AccessDenied, match=r"no longer has the key .* of anna"):
            client.call(repository_stats, StatsRequest(), "team/new")
    with on_streams(served, *options, "--user", "ben") as client, pytest.raises(AccessDenied) as denied:
        client.call(repository_stats, StatsRequest(), "team/new")
    assert denied.value.why == "the server's access rules allow ben nothing here; ask its administrator for more"
    said = log.read_text()
    who = f"user=anna by={key.fingerprint} from=[2001:db8::7]:50398"
    change = f"INFO change {who} path=team/new repository=created outcome=done\n"
    assert said.count(change) == 1
    assert "ben on standard input: Repository.stats on 'team/new': access-denied" in said
