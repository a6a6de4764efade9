"""transports.sftp_login: what `~/.ssh/config` and `known_hosts` say, and who cannot be reached. The rest needs a
server: tests/sockets/test_sftp.py."""

from __future__ import annotations

import base64
import hmac
import os
import re
import shlex
import socket
from pathlib import Path
from urllib.parse import urlsplit

import paramiko
import pytest

from transports import sftp_login
from transports.errors import TransportFailed
from transports.sftp_login import Account, fingerprint, log_in

KEY = b"\x00\x00\x00\x0bssh-ed25519 and the rest"
LINE = f"ssh-ed25519 {base64.b64encode(KEY).decode()}"


def way(tmp_path: Path, config: str, account: Account) -> sftp_login._Way:
    (tmp_path / "config").write_text(config)
    return sftp_login._way(
        Account(account.host, account.user, account.port, account.host_key, str(tmp_path / "config"))
    )


CONFIG = """\
Host short
  HostName long.example.org
  Port 2222
  User somebody
  IdentityFile ~/keys/one
  IdentityFile ~/keys/two
  IdentitiesOnly yes
  UserKnownHostsFile ~/known /other/known
  GlobalKnownHostsFile /system/known
Host alias
  HostKeyAlias another
Host behind
  ProxyCommand nc -X 5 %h %p
Host jumps
  ProxyJump me@gate
Host far
  ProxyJump a,b@c:2222,d
Host farther
  ProxyJump me@far,e
Host round around
  ProxyJump around
Host direct
  ProxyJump none
  ProxyCommand none
"""


def test_the_configuration_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    found = way(tmp_path, CONFIG, Account("short"))
    assert (found.host, found.port, found.user) == ("long.example.org", 2222, "somebody")
    assert found.known_as == "[long.example.org]:2222"
    assert found.identities == ("/home/me/keys/one", "/home/me/keys/two")
    assert found.known_hosts == ("/home/me/known", "/other/known", "/system/known")
    assert found.identities_only
    assert found.where == "somebody@long.example.org:2222"


def test_what_the_url_says_comes_first(tmp_path: Path) -> None:
    found = way(tmp_path, CONFIG, Account("short", "me", 22))
    assert (found.user, found.port, found.known_as) == ("me", 22, "long.example.org")
    assert found.where == "me@long.example.org"


def test_without_a_configuration_it_is_as_ssh_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("LOGNAME", "me")
    found = sftp_login._way(Account("2001:db8::1", config=str(tmp_path / "absent")))
    assert (found.host, found.port, found.user, found.command) == ("2001:db8::1", 22, "me", "")
    assert not found.identities_only
    assert found.identities[0] == "/home/me/.ssh/id_ed25519"
    assert found.known_hosts[0] == "/home/me/.ssh/known_hosts"
    assert found.where == "me@[2001:db8::1]"


@pytest.mark.parametrize(
    ("host", "command"),
    [
        ("behind", "nc -X 5 behind 22"),
        ("jumps", "ssh -o BatchMode=yes -W '[jumps]:22' ssh://me@gate"),
        ("direct", ""),
        ("short", ""),
    ],
)
def test_ways_through_a_command(tmp_path: Path, host: str, command: str) -> None:
    assert way(tmp_path, CONFIG, Account(host)).command == command


def expanded(command: str, host: str, port: str) -> str:
    """A `ProxyCommand` as ssh runs it."""
    return re.sub("%.", lambda each: {"%%": "%", "%h": host, "%p": port}[each[0]], command)


@pytest.mark.parametrize(
    ("host", "hops"),
    [
        ("far", ["a", "b@c:2222", "d"]),
        ("farther", ["a", "b@c:2222", "d", "me@far", "e"]),  # `far` is reached as the configuration says.
        ("round", ["around", "around"]),  # It ends.
    ],
)
def test_no_host_on_the_way_asks_anybody(tmp_path: Path, host: str, hops: list[str]) -> None:
    """Each is logged in to by an ssh in batch mode, which has the one before it run as a `ProxyCommand`."""
    command, target, found = way(tmp_path, CONFIG, Account(host)).command, f"[{host}]:22", list[str]()
    while command:
        program, *batch, leads, there, url = shlex.split(command)
        assert (program, batch[:2], leads, there) == ("ssh", ["-o", "BatchMode=yes"], "-W", target)
        found.append(url)
        hop = urlsplit(url)
        target = f"[{hop.hostname}]:{hop.port or 22}"
        option, proxy = batch[2:] or ("-o", "ProxyCommand=")
        assert (option, proxy[:13]) == ("-o", "ProxyCommand=")
        command = expanded(proxy[13:], str(hop.hostname), str(hop.port or 22))
    assert found == [f"ssh://{hop}" for hop in reversed(hops)]


@pytest.mark.parametrize(
    ("host", "user"), [("-oProxyCommand=x", ""), ("$(x)", ""), ("a b", ""), ("a", "-l"), ("a", "b;c"), ("a", "b\\")]
)
def test_what_a_command_could_misunderstand_is_no_name(host: str, user: str) -> None:
    with pytest.raises(ValueError, match=r"is not the name of a (host|user)$"):
        Account(host, user)


def test_a_key_may_be_kept_under_another_name(tmp_path: Path) -> None:
    assert way(tmp_path, CONFIG, Account("alias", port=99)).known_as == "another"


def hashed(host: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, host.encode(), "sha1").digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


class Key(paramiko.PKey):
    """A host's."""

    def __init__(self, blob: bytes = KEY) -> None:
        self._blob = blob

    def asbytes(self) -> bytes:
        return self._blob


def known(tmp_path: Path, lines: str, host: str = "example.org", port: int = 22, key: str = "") -> sftp_login._Known:
    (tmp_path / "known").write_text(lines)
    config = f"Host *\n  UserKnownHostsFile {tmp_path}/known\n  GlobalKnownHostsFile {tmp_path}/absent\n"
    return sftp_login._Known(way(tmp_path, config, Account(host, "me", port, key)))


@pytest.mark.parametrize(
    "names",
    ["example.org", "other.org,example.org,10.0.0.1", "*.org", "exam?le.org", "EXAMPLE.ORG", hashed("example.org")],
)
def test_a_known_key(tmp_path: Path, names: str) -> None:
    known(tmp_path, f"# a remark\n\nnot enough\n{names} {LINE} with a remark\n").check(Key())


@pytest.mark.parametrize(
    "line",
    [
        f"other.org {LINE}",
        f"*.org,!example.org {LINE}",
        f"[example.org]:2222 {LINE}",
        f"{hashed('other.org')} {LINE}",
        f"|1|broken {LINE}",
        f"|1|!|! {LINE}",
        "example.org ssh-ed25519 !!!",
        f"@cert-authority example.org {LINE}",
        f"# example.org {LINE}",
        "",
    ],
)
def test_an_unknown_key_is_refused_and_told_how_to_make_it_known(tmp_path: Path, line: str) -> None:
    with pytest.raises(paramiko.SSHException) as wrong:
        known(tmp_path, line).check(Key())
    assert str(wrong.value) == (
        f"its key {fingerprint(KEY)} is not in known_hosts: log in once with ssh, or add "
        f"?host-key={fingerprint(KEY)} to the URL"
    )


def test_which_key_a_host_may_have(tmp_path: Path) -> None:
    known(tmp_path, f"[example.org]:2222 {LINE}", port=2222).check(Key())
    with pytest.raises(paramiko.SSHException, match="is not in known_hosts"):
        known(tmp_path, f"example.org {LINE}", port=2222).check(Key())
    with pytest.raises(paramiko.SSHException, match=f"not the one in {tmp_path}/known"):
        known(tmp_path, f"example.org {LINE}").check(Key(b"another"))
    for key in ("", "any", fingerprint(KEY)):
        with pytest.raises(paramiko.SSHException, match="is revoked in known_hosts"):
            known(tmp_path, f"example.org {LINE}\n@revoked * {LINE}", key=key).check(Key())
    known(tmp_path, "", key="any").check(Key())
    known(tmp_path, "", key=fingerprint(KEY)).check(Key())
    with pytest.raises(paramiko.SSHException, match=r"its key is SHA256:.*, not SHA256:other"):
        known(tmp_path, f"example.org {LINE}", key="SHA256:other").check(Key())


def test_a_key_of_a_known_type_is_asked_for(tmp_path: Path) -> None:
    ends = socket.socketpair()
    connection = paramiko.Transport(ends[0])
    options = connection.get_security_options()
    before = list(options.key_types)
    known(tmp_path, f"example.org ssh-rsa {LINE.split()[1]}").prefer(options)
    assert [name for name in options.key_types[:2] if name.startswith("rsa-sha2")] == list(options.key_types[:2])
    assert sorted(options.key_types) == sorted(before)
    for end in ends:
        end.close()


class Agent:
    """One that holds these."""

    def __init__(self, *keys: paramiko.PKey) -> None:
        self._keys = keys

    def get_keys(self) -> tuple[paramiko.PKey, ...]:
        return self._keys


def offered(way: sftp_login._Way, agent: Agent) -> list[bytes]:
    return [key.asbytes() for _, key in sftp_login._keys(way, agent, [])]  # type: ignore[arg-type]


def test_the_keys_of_the_agent_may_be_those_of_files_alone(tmp_path: Path) -> None:
    """By the public key beside a private one that is not there, or named itself."""
    for name, blob in (("one.pub", b"one"), ("two.pub", b"two")):
        (tmp_path / name).write_text(f"ssh-ed25519 {base64.b64encode(blob).decode()} a remark\n")
    (tmp_path / "broken.pub").write_text("nothing")
    files = "".join(f"  IdentityFile {tmp_path}/{name}\n" for name in ("absent", "broken", "one", "two.pub"))
    agent = Agent(Key(b"one"), Key(b"three"), Key(b"two"))
    for only, keys in (("yes", [b"one", b"two"]), ("no", [b"one", b"three", b"two"])):
        config = f"Host *\n  IdentitiesOnly {only}\n{files}"
        assert offered(way(tmp_path, config, Account("x", "me")), agent) == keys


def test_a_key_is_offered_once(tmp_path: Path) -> None:
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(tmp_path / "key"))
    config = f"Host *\n  IdentityFile {tmp_path}/key\n"
    assert offered(way(tmp_path, config, Account("x", "me")), Agent(key, Key(b"two"))) == [key.asbytes(), b"two"]


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(TransportFailed, match=f"^cannot connect to me@127.0.0.1:{port}: Connection refused$"):
            log_in(Account("127.0.0.1", "me", port, config=str(tmp_path / "absent")))


def test_a_configuration_of_any_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"# Gr\xfc\xdfe\nHost x\n  Port 2222\n  IdentityFile /k\xe9y\n")
    found = sftp_login._way(Account("x", "me", config=str(tmp_path / "config")))
    assert (found.port, [os.fsencode(path) for path in found.identities]) == (2222, [b"/k\xe9y"])
    (tmp_path / "config").write_text("Host *\n  Port many\n")
    with pytest.raises(TransportFailed, match=r"^cannot read .*/config: invalid literal"):
        log_in(Account("x", config=str(tmp_path / "config")))


@pytest.mark.parametrize("command", ["false", "echo This is no server"])
def test_a_command_that_leads_nowhere_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "config").write_text(f"Host *\n  ProxyCommand {command}\n")
    with pytest.raises(TransportFailed, match=f"^cannot log in to me@x through `{command}`: "):
        log_in(Account("x", "me", config=str(tmp_path / "config")))
