"""server.tcp, server.tls, client.media.tls, client.media.tls_relay, cli.trust: TLS on the port of plain connections,
and the clients and servers that are refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import key_updates
import pytest
import strangers
from certificates import Authority
from dialogs import message
from on_threads import Serve
from serving import PATIENCE, Server, User, run, server_refs, wait_until, write_history

from smartserver.client.call import Client
from smartserver.client.media.pipe import PipeMedium
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.media.tls import TlsMedium
from smartserver.client.media.tls_relay import command
from smartserver.client.medium import CannotConnect, Medium
from smartserver.client.request import Outgoing, Refusal
from smartserver.client.trust import Trust
from smartserver.errors import AccessDenied, ServerBusy
from smartserver.server.connections import PARTING
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.server_info import InfoRequest, server_info
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import End, Event, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.messages import encode
from smartserver.wire.tls import ALPN

pytestmark = pytest.mark.sockets

HOST = "127.0.0.1"
LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp (proc(5))."""
PULL = encode(message((repository_pull, PullRequest(refs=[b"refs/heads/main"])), path="p"))


class Secure:
    """A server with TLS, and the authority that its clients trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.trust = Trust(ca=str(self.authority.file))
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self.use(*self.authority.sign(HOST))
        (folder / "served").mkdir()

    def use(self, certificate: Path, key: Path) -> None:
        shutil.copy(certificate, self.certificate)
        shutil.copy(key, self.key)

    @contextlib.contextmanager
    def serve(self, *options: str) -> Iterator[Server]:
        words = ("--tls", str(self.certificate), "--tls-key", str(self.key), "-v", *options)
        with Server(self.folder / "served", *words) as server:
            yield server


@pytest.fixture
def secure(tmp_path: Path) -> Secure:
    return Secure(tmp_path)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "user")


def info(medium: Medium) -> str:
    with Client(lambda: medium) as client:
        return client.call(server_info, InfoRequest()).version


def answered(server: Server) -> int:
    """Return the number of requests that the server has read."""
    return sum(" INFO request " in line for line in server.log)


def fingerprint(server: Server) -> str:
    """Return the fingerprint of its certificate that the server printed at its start."""
    wait_until(lambda: any("SHA256" in line for line in server.log), "a fingerprint")
    return next(line.split()[-1] for line in server.log if "SHA256" in line)


def connections_of(pid: int) -> int:
    """Return the number of TCP connections of a process, without its listening socket."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It was closed meanwhile.
            sockets.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(line[9] in sockets and line[3] != LISTENS for line in lines)


def test_clients_with_and_without_tls_are_served_on_one_port(secure: Secure) -> None:
    with secure.serve() as server:
        found = info(TlsMedium(HOST, server.port, secure.trust))
        assert found == info(TcpMedium(HOST, server.port))
        assert found == info(PipeMedium(command(HOST, server.port, secure.trust), quotes=True, waits=True))


def test_git_pushes_and_clones(secure: Secure, user: User) -> None:
    """The history has megabytes, so that both directions have to wait."""
    ids = write_history(user, "w", 3, seed="tls", size=1 << 20)
    with secure.serve("--require-tls") as server:
        url = f"hpss+tls://{HOST}:{server.port}/p"
        user.git("push", "-q", f"{url}?ca={secure.trust.ca}", "main", folder="w").worked()
        assert server_refs(server.root, "p") == {"refs/heads/main": ids[-1]}
        user.git("clone", "-q", f"{url}?ca={secure.trust.ca}", "again").worked()
        assert user.tip("again") == ids[-1]
        said = user.git("push", url, "main", folder="w").failed("push")
        assert said.startswith(f"cannot connect to {HOST}:{server.port}: its certificate is not trusted (")


def test_where_tls_is_required_a_client_without_is_told_so(secure: Secure, user: User) -> None:
    write_history(user, "w", 1, seed="plain", size=10)
    with secure.serve("--require-tls") as server:
        said = user.git("push", server.url("p"), "main", folder="w").failed("push")
        assert said.endswith("not allowed to connect without TLS: use hpss+tls:// in the URL")
        with Client(lambda: TcpMedium(HOST, server.port)) as client, pytest.raises(AccessDenied, match="hpss\\+tls"):
            client.call(server_info, InfoRequest())
        assert answered(server) == 0
        assert not server_refs(server.root, "p")


@pytest.mark.parametrize(
    ("host", "expired", "trusted", "why"),
    [
        ("192.0.2.1", False, True, "IP address mismatch"),
        ("example.org", False, True, "IP address mismatch"),
        (HOST, True, True, "certificate has expired"),
        (HOST, False, False, "unable to get local issuer certificate"),
    ],
)
def test_a_certificate_that_is_not_to_be_trusted(
    secure: Secure, host: str, expired: bool, trusted: bool, why: str
) -> None:
    """The client sends nothing to such a server."""
    secure.use(*secure.authority.sign(host, expired=expired))
    trust = secure.trust if trusted else Trust(ca=str(Authority(secure.folder / "other", "another").file))
    with secure.serve() as server:
        for connect in (
            lambda: TlsMedium(HOST, server.port, trust),
            lambda: PipeMedium(command(HOST, server.port, trust), quotes=True, waits=True),
        ):
            with pytest.raises(CannotConnect, match=f"is not trusted by {trust.ca} .*{why}"):
                info(connect())
        with pytest.raises(CannotConnect, match="is not trusted"):
            info(TlsMedium(HOST, server.port, Trust()))
        assert answered(server) == 0


@pytest.mark.parametrize("behave", [strangers.http, strangers.ssh, strangers.closes])
def test_a_server_without_tls_is_one_line_and_no_plain_connection(behave: Serve) -> None:
    """An attacker who removes TLS gets nothing: neither a request nor another attempt without TLS."""
    heard: list[bytes] = []

    def listening(connection: socket.socket) -> None:
        heard.append(connection.recv(65536, socket.MSG_PEEK))
        behave(connection)

    why = "(it does not speak TLS there|Connection reset by peer, in the handshake of TLS)"
    with strangers.stranger(listening) as port, pytest.raises(CannotConnect, match=f"{HOST}:{port}: {why}"):
        TlsMedium(HOST, port, Trust())
    assert len(heard) == 1
    assert PREFACE not in heard[0]


def test_a_server_of_another_protocol_over_tls(secure: Secure) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secure.certificate, secure.key)

    def https(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    why = "it speaks TLS, but not hpss"
    with strangers.stranger(https) as port, pytest.raises(CannotConnect, match=why):
        TlsMedium(HOST, port, secure.trust)


def test_an_older_tls_is_refused(secure: Secure) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        secure.serve() as server,
        socket.create_connection((HOST, server.port), PATIENCE) as plain,
        pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
    ):
        context.wrap_socket(plain)


@pytest.mark.parametrize(
    "hello", [b"\x16", b"\x16\x03\x01", b"\x16" * 500, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_a_handshake_that_is_none_or_never_ends(secure: Secure, hello: bytes) -> None:
    with secure.serve("--idle-timeout", "1") as server:
        with socket.create_connection((HOST, server.port), PATIENCE) as strange:
            strange.sendall(hello)
            with contextlib.suppress(ConnectionResetError):
                while strange.recv(65536):
                    pass
        assert info(TlsMedium(HOST, server.port, secure.trust))


def test_a_client_that_asks_for_new_keys_and_reads_nothing(secure: Secure, tmp_path: Path) -> None:
    """Each answer stays in memory, beyond the bounds of writes, so the server closes the connection."""
    with secure.serve() as server:
        with socket.create_connection((HOST, server.port), PATIENCE) as strange:
            client = key_updates.Client(tmp_path / "keys")
            strange.sendall(client.step())
            while not client.ready:
                strange.sendall(client.step(strange.recv(65536)))
            asked = client.key_updates()
            assert info(TlsMedium(HOST, server.port, secure.trust))
            with contextlib.suppress(ConnectionError):
                for _ in range(10_000):
                    strange.sendall(next(asked))
        said = "dropped: it asks for new TLS keys again and again: 4096 steps of TLS"
        wait_until(lambda: any(said in line for line in server.log), "the line in the log")
        assert info(TlsMedium(HOST, server.port, secure.trust))


def test_a_client_that_is_one_too_many_is_told_so_in_its_own_way(secure: Secure) -> None:
    with secure.serve("--max-connections", "1") as server:

        def connect() -> Medium:
            return TlsMedium(HOST, server.port, secure.trust)

        with Client(connect) as first:
            first.call(server_info, InfoRequest())
            for other in (connect, lambda: TcpMedium(HOST, server.port)):
                with Client(other, sleep=lambda _: None) as client, pytest.raises(Refusal) as refused:
                    client.request(Outgoing("", [(server_info, InfoRequest())]))
                assert isinstance(refused.value.error, ServerBusy)


def test_a_client_that_goes_without_a_word_of_tls(secure: Secure) -> None:
    """The client takes no place from others."""
    with secure.serve("--max-connections", "1") as server:
        for _ in range(3):
            medium = TlsMedium(HOST, server.port, secure.trust)
            medium.write_some(memoryview(PREFACE))
            wait_until(lambda: connections_of(server.process.pid) == 1, "the connection")
            medium.close()
            wait_until(lambda: connections_of(server.process.pid) == 0, "the end of the connection")
        assert info(TlsMedium(HOST, server.port, secure.trust))


def test_a_server_that_stops_says_goodbye_over_tls(secure: Secure) -> None:
    with secure.serve() as server:
        medium = TlsMedium(HOST, server.port, secure.trust)
        with Client(lambda: medium) as client:
            client.call(server_info, InfoRequest())
            server.process.terminate()
            assert medium.poll(read=True, write=False, timeout=PATIENCE) == (True, False)
            assert b"the server is stopping" in medium.read(1000)
        assert server.process.wait(PATIENCE) == 0


def test_a_server_that_stops_waits_until_an_answer_is_taken(secure: Secure, user: User) -> None:
    """A part of the answer is still in the server, which has no more work for the request."""
    write_history(user, "w", 1, seed="stop", size=210_000)
    with secure.serve() as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
        context = ssl.create_default_context(cafile=secure.trust.ca)
        context.set_alpn_protocols([ALPN])
        plain = socket.socket()
        plain.settimeout(PATIENCE)
        plain.connect((HOST, server.port))
        with context.wrap_socket(plain, server_hostname=HOST) as connection:
            client = Connection(Role.CLIENT)
            connection.sendall(client.send(Request(1, PULL)))
            client.receive_data(connection.recv(1))
            wait_until(lambda: answered(server) == 2, "the end of the answer, as the server sees it")
            server.process.terminate()
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(2 * PARTING)
            events: list[Event] = []
            while not any(isinstance(event, End) for event in events):
                received = connection.recv(65536)
                assert received, "the rest was thrown away"
                client.receive_data(received)
                events += iter(client.next_event, None)
        assert server.process.wait(PATIENCE) == 0


def test_trust_is_confirmed_once(secure: Secure, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    write_history(user, "w", 1, seed="trust", size=10)
    monkeypatch.setenv("HOME", str(user.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with secure.serve() as server:
        where, url = f"{HOST}:{server.port}", f"hpss+tls://{HOST}:{server.port}/p"

        def trust(*words: str) -> tuple[int, str]:
            done = run("-m", "smartserver.cli.main", "trust", *words)
            return done.status, done.out + done.err

        assert "run `smartserver trust" in user.git("push", url, "main", folder="w").failed("push")
        status, said = trust(where)
        assert status == 1
        found = said.split()[5].rstrip(":")
        assert found.startswith("SHA256:")
        assert trust(where, "--fingerprint", "SHA256:other") == (
            1,
            f"smartserver: {where} has another certificate: expected SHA256:other, got {found}. "
            "Somebody may be listening in\n",
        )
        status, said = trust(url, "--fingerprint", found)
        assert (status, said.splitlines()[-1].startswith(f"{where} is trusted as {found}: ")) == (0, True)
        user.git("push", "-q", url, "main", folder="w").worked()
        assert trust(where)[0] == 0
        secure.use(*secure.authority.sign(HOST))
        assert "its certificate has changed" in user.git("fetch", url, folder="w").failed("fetch")
        assert trust(where, "--forget")[0] == 0
        assert "is not trusted" in user.git("fetch", url, folder="w").failed("fetch")
    assert trust(where)[1].startswith(f"smartserver: cannot connect to {where}: ")
    with strangers.stranger(strangers.ssh) as port:
        assert "does not speak TLS" in trust(f"{HOST}:{port}")[1]
    assert "is not a URL" in trust("http://example.org/")[1]


def test_a_certificate_of_its_own(secure: Secure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(secure.folder / "state"))
    found: list[str] = []
    for _ in range(2):
        with Server(secure.folder / "served", "--tls", "auto") as server:
            found.append(fingerprint(server))
            assert info(TlsMedium(HOST, server.port, Trust(found[0])))
    assert found[0] == found[1]
