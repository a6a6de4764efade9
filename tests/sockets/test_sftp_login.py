"""transports.sftp_login, transports.sftp: logins to a real OpenSSH server, and the errors of a failed one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import program
from sshd import ALIAS, Sshd

from transports.base import Step
from transports.errors import NotSupported, PermissionDenied, TransportFailed
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


def served(sshd: Sshd, tmp_path: Path, subsystem: str) -> Iterator[SftpTransport]:
    keys, folder = tmp_path / "keys", tmp_path / "folder"
    keys.mkdir()
    folder.mkdir()
    with Sshd(keys, subsystem=subsystem) as server:
        account = Account(server.host, port=server.port, config=str(server.config))
        made = SftpTransport(Line(lambda: log_in(account)), str(folder), "there")
        yield made
        made.close()


@pytest.fixture
def plain(sshd: Sshd, tmp_path: Path) -> Iterator[SftpTransport]:
    """An OpenSSH without its extensions of the draft."""
    yield from served(sshd, tmp_path, "internal-sftp -P posix-rename,fsync")


def test_a_server_that_replaces_no_files(plain: SftpTransport) -> None:
    """By the draft, a rename over a file is refused; no other way is atomic."""
    plain.put("old", [b"old"])
    plain.put("new", [b"new"])
    with pytest.raises(NotSupported, match="this transport has no rename over a file"):
        plain.rename("new", "old")
    assert (plain.get("old"), plain.get("new")) == (b"old", b"new")
    plain.rename("new", "newer")
    read = Get("newest")
    plain.perform([Put("x", b"x"), Rename("newer", "newest"), SyncDirectory(""), read])
    assert (read.content, plain.list_directory("")) == (b"new", ["newest", "old", "x"])


@pytest.fixture
def readonly(sshd: Sshd, tmp_path: Path) -> Iterator[SftpTransport]:
    yield from served(sshd, tmp_path, "internal-sftp -R")


def test_a_server_that_lets_nothing_be_changed(readonly: SftpTransport, tmp_path: Path) -> None:
    (tmp_path / "folder" / "x").write_bytes(b"x")
    assert readonly.get("x") == b"x"
    changes: list[Step] = [Put("y"), MakeDirectory("y"), Rename("x", "y"), Delete("x")]
    for change in changes:
        with pytest.raises(PermissionDenied):
            change.do(readonly)
        with pytest.raises(PermissionDenied):
            readonly.perform([change, Put("z")])
    assert readonly.list_directory("") == ["x"]
