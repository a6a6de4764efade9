"""transports.sftp, sftp_login, sftp_session with a real OpenSSH server: logins and their errors, the cost of each
operation on a long link, and losses of the connection, of which everybody is told wherever they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from needs import program
from sshd import ALIAS, Sshd

from netem.effects import Cut
from netem.link import Link
from netem.proxy import Proxy
from transports import steps
from transports.base import ReadFile, Step
from transports.errors import DirectoryNotEmpty, NotSupported, PermissionDenied, TransportFailed
from transports.registry import open_url
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account, log_in
from transports.steps import Delete, Get, MakeDirectory, Put, Rename, SyncDirectory

pytestmark = pytest.mark.sockets


def configured(sshd: Sshd, folder: Path, **options: str) -> str:
    """Write a configuration like the server's, with other options, and return its path."""
    said = {
        "HostKeyAlias": ALIAS,
        "UserKnownHostsFile": f"{sshd.folder}/known_hosts",
        "IdentityFile": f"{sshd.folder}/user_key",
        "IdentitiesOnly": "yes",
    } | options
    config = folder / "config"
    config.write_text("Host *\n" + "".join(f"  {name} {value}\n" for name, value in said.items()))
    return str(config)


def reach(sshd: Sshd, config: str, host_key: str = "", user: str = "") -> None:
    """Log in and out."""
    session = log_in(Account(sshd.host, user, sshd.port, host_key, config))
    try:
        session.has(b"")
    finally:
        session.close()


def refusal(sshd: Sshd, config: str, host_key: str = "", user: str = "") -> str:
    """Return the error of a failed login: one line, on the connection and not on a file."""
    with pytest.raises(TransportFailed) as wrong:
        reach(sshd, config, host_key, user)
    assert wrong.value.path == ""
    where = f"{user or sshd.user}@{sshd.host}:{sshd.port}"
    assert wrong.value.reason.startswith(f"cannot log in to {where}: ")
    assert "\n" not in wrong.value.reason
    return wrong.value.reason.partition(f"{where}: ")[2]


def shown(key: Path) -> str:
    """Return a key's fingerprint, as OpenSSH prints it."""
    found = subprocess.run([program("ssh-keygen"), "-l", "-f", str(key)], capture_output=True, text=True, check=True)
    return found.stdout.split()[1]


def test_an_unknown_host_is_refused_unless_its_key_is_told(sshd: Sshd, tmp_path: Path) -> None:
    config = configured(sshd, tmp_path, UserKnownHostsFile=str(tmp_path / "none"))
    key = shown(sshd.folder / "host_key.pub")
    advice = f"log in once with ssh, or add ?host-key={key} to the URL"
    assert refusal(sshd, config) == f"its key {key} is not in known_hosts: {advice}"
    reach(sshd, config, key)
    reach(sshd, config, "any")
    assert refusal(sshd, config, "SHA256:other") == f"its key is {key}, not SHA256:other"


def test_a_key_the_server_does_not_know(sshd: Sshd, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    assert refusal(sshd, configured(sshd, tmp_path, IdentityFile=str(key))) == f"it accepts none of your keys ({key})"


def test_a_key_with_a_passphrase_is_not_asked_for_it(sshd: Sshd, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)], check=True)
    said = refusal(sshd, configured(sshd, tmp_path, IdentityFile=str(key)))
    assert said.startswith(f"it accepts none of your keys ({key} cannot be used: ")


def test_more_keys_than_a_server_takes(sshd: Sshd, tmp_path: Path) -> None:
    keys = [tmp_path / f"key{number}" for number in range(8)]
    for key in keys:
        subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    said = refusal(sshd, configured(sshd, tmp_path, IdentityFile="\n  IdentityFile ".join(map(str, keys))))
    assert str(keys[0]) in said
    assert str(keys[7]) not in said
    assert "then it ended the connection" in said


@pytest.fixture
def agent(sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An ssh agent that holds the key."""
    path = f"/tmp/agent.{os.getpid()}"  # The name of a socket may not be long.
    with subprocess.Popen([program("ssh-agent"), "-D", "-a", path], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        subprocess.run([program("ssh-add"), "-q", str(sshd.folder / "user_key")], check=True)
        yield
        running.terminate()


@pytest.mark.usefixtures("agent")
def test_a_key_of_the_agent(sshd: Sshd, tmp_path: Path) -> None:
    options = {"IdentityFile": str(tmp_path / "absent")}
    reach(sshd, configured(sshd, tmp_path, IdentitiesOnly="no", **options))
    assert refusal(sshd, configured(sshd, tmp_path, **options)) == "it accepts none of your keys (there are none)"
    shutil.copy(sshd.folder / "user_key.pub", tmp_path / "absent.pub")
    reach(sshd, configured(sshd, tmp_path, **options))


def test_through_hosts_that_are_logged_in_to(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login passes three identical hosts in turn. Only `-F` gives `ssh` its configuration."""
    here = tmp_path / "here"
    here.mkdir()
    of_hosts = configured(sshd, here, HostName=sshd.host, Port=str(sshd.port))
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {program("ssh")} -F {of_hosts} "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reach(sshd, configured(sshd, tmp_path, ProxyJump=f"a,{sshd.user}@{sshd.host}:{sshd.port},c"))


def test_a_url(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login uses the configuration in the user's home."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    configured(sshd, home / ".ssh", User=sshd.user, Port=str(sshd.port), HostName=sshd.host)
    folder = tmp_path / "a folder"
    folder.mkdir()
    transport = open_url(f"sftp://anywhere{tmp_path}/a%20folder/")
    assert isinstance(transport, SftpTransport)
    transport.put("x", [b"x"])
    assert (folder / "x").read_bytes() == b"x"
    assert transport.describe("x") == f"sftp://anywhere{tmp_path}/a%20folder/x"
    transport.close()
    other = open_url("sftp://anywhere/~")
    assert isinstance(other, SftpTransport)
    assert other.real_path() == os.path.realpath(os.path.expanduser(f"~{sshd.user}"))
    other.close()


@contextmanager
def served(tmp_path: Path, subsystem: str) -> Iterator[SftpTransport]:
    keys, folder = tmp_path / "keys", tmp_path / "folder"
    keys.mkdir()
    folder.mkdir()
    with Sshd(keys, subsystem=subsystem) as server:
        account = Account(server.host, port=server.port, config=str(server.config))
        with closing(SftpTransport(Line(lambda: log_in(account)), str(folder), "there")) as made:
            yield made


def test_a_server_that_replaces_no_files(tmp_path: Path) -> None:
    """By the draft, without OpenSSH's extensions of it, a rename over a file is refused; no other way is atomic."""
    with served(tmp_path, "internal-sftp -P posix-rename,fsync") as plain:
        plain.put("old", [b"old"])
        plain.put("new", [b"new"])
        with pytest.raises(NotSupported, match="this transport has no rename over a file"):
            plain.rename("new", "old")
        assert (plain.get("old"), plain.get("new")) == (b"old", b"new")
        plain.rename("new", "newer")
        read = Get("newest")
        plain.perform([Put("x", b"x"), Rename("newer", "newest"), SyncDirectory(""), read])
        assert (read.content, plain.list_directory("")) == (b"new", ["newest", "old", "x"])


def test_a_server_that_lets_nothing_be_changed(tmp_path: Path) -> None:
    with served(tmp_path, "internal-sftp -R") as readonly:
        (tmp_path / "folder" / "x").write_bytes(b"x")
        assert readonly.get("x") == b"x"
        changes: list[Step] = [Put("y"), MakeDirectory("y"), Rename("x", "y"), Delete("x")]
        for change in changes:
            with pytest.raises(PermissionDenied):
                change.do(readonly)
            with pytest.raises(PermissionDenied):
                readonly.perform([change, Put("z")])
        assert readonly.list_directory("") == ["x"]


RTT, SOON = 0.02, 0.002
MIB = bytes(range(256)) * 4096
Connected = Callable[..., Proxy]


def place(server: Sshd, folder: Path, link: Proxy) -> SftpTransport:
    """A folder on a real SFTP server through a link; nothing is connected yet."""
    account = Account(link.host, port=link.port, config=str(server.config))
    return SftpTransport(Line(lambda: log_in(account)), str(folder), "sftp://there")


@pytest.fixture
def link(sshd: Sshd, proxy: Connected) -> Proxy:
    return proxy((sshd.host, sshd.port), RTT)


@pytest.fixture
def transport(sshd: Sshd, link: Proxy, tmp_path: Path) -> Iterator[SftpTransport]:
    """A connection after login, with some files; the login does not count."""
    made = place(sshd, tmp_path, link)
    for number in range(20):
        (tmp_path / f"f{number}").write_bytes(b"%d" % number * 1000)
    (tmp_path / "large").write_bytes(MIB)
    (tmp_path / "log").mkdir()
    made.sync_directory("")
    link.take()
    yield made
    made.close()


@pytest.mark.max_round_trips("sftp: log in and ask")
def test_log_in(sshd: Sshd, link: Proxy, tmp_path: Path) -> None:
    made = place(sshd, tmp_path, link)
    assert not made.exists("x")
    made.close()


@pytest.mark.max_round_trips("sftp: get 300")
def test_get_300(transport: SftpTransport) -> None:
    """The steps are read in groups of the size that an exchange keeps under way."""
    asked = [steps.Get(f"f{number % 20}") for number in range(300)]
    transport.perform(asked)
    assert [len(step.content) for step in asked[:20]] == [1000] * 10 + [2000] * 10


@pytest.mark.max_round_trips("sftp: get what is not there")
def test_get_absent(transport: SftpTransport) -> None:
    content, there, names = steps.Get("absent"), steps.GetStat("absent"), steps.ListDirectory("absent")
    transport.perform([content, there, names])
    assert (content.result, there.result, names.result) == (None, None, None)


@pytest.mark.max_round_trips("sftp: ask for all sorts")
def test_questions(transport: SftpTransport) -> None:
    whole, ranges, names = (
        steps.Get("large"),
        steps.ReadRanges("large", [(500, 9), (1 << 20, 9), (7, 1)]),
        steps.ListDirectory(""),
    )
    transport.perform([whole, ranges, steps.GetStat("f1"), names, steps.GetStat("absent")])
    assert (whole.content, ranges.result) == (MIB, [MIB[500:509], b"", MIB[7:8]])
    assert names.result is not None


@pytest.mark.max_round_trips("sftp: put 2")
def test_put_2(transport: SftpTransport) -> None:
    transport.perform([steps.Put("new.pack", b"p" * 10_000), steps.Put("new.idx", b"i" * 1000)])


@pytest.mark.max_round_trips("sftp: replace a file")
def test_replace(transport: SftpTransport) -> None:
    transport.perform([steps.Put("root.1", b"new"), steps.Rename("root.1", "f0"), steps.SyncDirectory("")])


@pytest.mark.max_round_trips("sftp: read 1 MiB")
def test_read_large(transport: SftpTransport) -> None:
    assert transport.get("large") == MIB


@pytest.mark.max_round_trips("sftp: write 1 MiB")
def test_write_large(transport: SftpTransport, tmp_path: Path) -> None:
    transport.put("new", [MIB[:700_000], MIB[700_000:]])
    assert (tmp_path / "new").read_bytes() == MIB


@pytest.mark.max_round_trips("sftp: read 50 ranges of an open file")
def test_ranges(transport: SftpTransport, link: Proxy) -> None:
    file: ReadFile = transport.open_read("large")
    link.take()
    wanted = [(number * 20_000, 300) for number in range(50)]
    assert file.read_ranges(wanted) == [MIB[at : at + size] for at, size in wanted]
    file.close()


@pytest.mark.max_round_trips("sftp: list 2000 names")
def test_long_list(transport: SftpTransport, tmp_path: Path, link: Proxy) -> None:
    (tmp_path / "many").mkdir()
    for number in range(2000):
        (tmp_path / "many" / f"{number:04}").touch()
    assert transport.list_directory("many") == [f"{number:04}" for number in range(2000)]


@pytest.mark.max_round_trips("sftp: refused")
def test_refusals_say_why_at_once(transport: SftpTransport, tmp_path: Path) -> None:
    """The reads that explain a refusal are sent together with the operation that may be refused."""
    (tmp_path / "log" / "1").mkdir()
    (tmp_path / "log" / "1" / "record").touch()
    (tmp_path / "log" / "mine").mkdir()
    with pytest.raises(DirectoryNotEmpty):
        transport.perform([steps.Rename("log/mine", "log/1"), steps.Get("f1")])


@pytest.mark.max_round_trips("sftp: publish")
def test_publish(transport: SftpTransport) -> None:
    transport.perform([steps.Publish("f1", "1"), steps.GetStat("f2")])


@pytest.mark.max_round_trips("sftp: publish as a folder")
def test_publish_as_a_folder(transport: SftpTransport, tmp_path: Path) -> None:
    transport._line.links = False
    transport.perform([steps.Publish("f1", "1"), steps.GetStat("f2")])
    assert (tmp_path / "1" / "record").read_bytes() == b"1" * 1000


@pytest.fixture
def as_folder(tmp_path: Path) -> None:
    """Make a folder with a record, as a publication without links leaves it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "record").write_bytes(b"r")


@pytest.mark.usefixtures("as_folder")
@pytest.mark.max_round_trips("sftp: get what was published")
def test_get_published(transport: SftpTransport) -> None:
    folder, file, absent = (steps.GetPublished(path) for path in ("folder", "f1", "absent"))
    transport.perform([folder, file, absent])
    assert (folder.result, file.result, absent.result) == (b"r", b"1" * 1000, None)


@pytest.mark.usefixtures("as_folder")
@pytest.mark.max_round_trips("sftp: withdraw")
@pytest.mark.parametrize("path", ["folder", "f1"])
def test_withdraw(transport: SftpTransport, tmp_path: Path, path: str) -> None:
    transport.withdraw(path, "aside")
    assert not (tmp_path / path).exists()
    assert not (tmp_path / "aside").exists()


def cut(link: Proxy, after: int, *, up: bool) -> None:
    """Lose the connection when so many bytes more have come out."""
    link.change(Link(SOON, up=[Cut(after)]) if up else Link(SOON, down=[Cut(after)]))


def whole(link: Proxy) -> None:
    link.change(Link(SOON))


def work(size: int, new: str = "new") -> list[Step]:
    """A push as a repository makes one, with a pack of so many bytes in a new folder."""
    return [
        steps.Get("root"),
        steps.MakeDirectory(new),
        steps.Put(f"{new}/pack", b"p" * size),
        steps.Put(f"{new}/index", b"i" * 100),
        steps.SyncDirectory(new),
        steps.Rename(new, "packs"),
        steps.Put("root.1", b"new"),
        steps.Rename("root.1", "root"),
        steps.SyncDirectory(""),
        steps.ListDirectory("packs"),
        steps.Delete("old"),
    ]


@pytest.mark.parametrize(
    ("size", "up", "cuts"),
    [
        (50_000, True, range(0, 56_000, 7000)),
        (50_000, False, range(0, 2600, 320)),
        (1 << 20, True, range(0, 1_100_000, 180_000)),
    ],
    ids=["up", "down", "up, much"],
)
def test_wherever_it_is_lost_the_steps_before_are_done(
    transport: SftpTransport, link: Proxy, tmp_path: Path, size: int, up: bool, cuts: range
) -> None:
    """Nothing that comes after a step that failed was done: each state is one on the way."""
    steps = 0
    for after in cuts:
        new = f"new{after}"  # The server may still carry out what it received of the time before.
        for name in ("root", "old"):
            (tmp_path / name).write_bytes(b"old")
        transport.exists("root")  # It is connected again by itself.
        cut(link, after, up=up)
        try:
            transport.perform(work(size, new))
        except TransportFailed as lost:
            assert "is lost" in lost.reason  # noqa: PT017
        else:
            steps += 1
        whole(link)
        there = {path.name for path in tmp_path.iterdir()}
        if "packs" in there:
            assert (tmp_path / "packs" / "pack").read_bytes() == b"p" * size
        if (tmp_path / "root").read_bytes() != b"old":
            assert (tmp_path / "root").read_bytes() == b"new"
            assert "packs" in there
        assert "old" in there or (tmp_path / "root").read_bytes() == b"new"
        if "packs" in there:
            shutil.rmtree(tmp_path / "packs")
        (tmp_path / "root.1").unlink(missing_ok=True)
    assert steps < len(cuts) // 2


def test_lost_while_streaming(transport: SftpTransport, link: Proxy, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    file = transport.open_read("large")
    cut(link, 1 << 20, up=False)
    with pytest.raises(TransportFailed, match="is lost"):
        file.read_at(0, 3 << 20)
    with pytest.raises(TransportFailed, match="is lost"):
        file.size()
    file.close()
    whole(link)
    written = transport.create("new")
    cut(link, 1 << 20, up=True)
    with pytest.raises(TransportFailed, match="is lost"):
        written.write(bytes(20 << 20))
    with pytest.raises(TransportFailed):
        written.sync()
    with pytest.raises(TransportFailed):
        written.close()
    whole(link)
    assert transport.stat("large").size == 3 << 20
