"""Reaching an account over SSH, as `ssh` would: by `~/.ssh/config`, `known_hosts`, the agent and the keys in files.
Nobody is ever asked for anything; what cannot be had so is one line that says what was tried.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import getpass
import hashlib
import hmac
import io
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import paramiko
from paramiko.pkey import UnknownKeyType

from transports.errors import TransportFailed
from transports.sftp_session import PATIENCE, Session

TIMEOUT = 60.0
"""Seconds until somebody must have answered: to the connection, in each step of the login. As for our own protocol."""

WINDOW = 16 * 1024 * 1024
"""Bytes the server may send before it is told that they were read: more than a session asks for, so that it never waits
for that on a long link."""

CONFIG = "~/.ssh/config"
KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
"""The files in which OpenSSH looks by default."""

ANY_KEY = "any"
"""Said instead of a fingerprint: the host may have any key."""

PORT = 22

RSA = {"rsa-sha2-512": "ssh-rsa", "rsa-sha2-256": "ssh-rsa"}
"""Ways to sign with a key -> its type, where the two have different names."""

NO_BANNER = "Error reading SSH protocol banner"
"""Paramiko's message about a silent server; the system's own words may follow."""

logging.getLogger("paramiko").addHandler(logging.NullHandler())
# What it complains of is raised too; without this it would also be printed.


@dataclass(frozen=True, slots=True)
class Account:
    """The account to log in to; an empty field, or 0, is as the configuration says."""

    host: str
    user: str = ""
    port: int = 0
    host_key: str = ""
    """The fingerprint of the key it has (`SHA256:...`), or `any`; empty: a known one."""
    config: str = CONFIG

    def __post_init__(self) -> None:
        """Refuse what a `ProxyCommand`, into which it may be put, could take for something else."""
        for what, name, signs in (("host", self.host, "._-:%"), ("user", self.user, "._-+@\\")):
            if name.startswith("-") or name.endswith("\\") or not all(sign.isalnum() or sign in signs for sign in name):
                raise ValueError(f"{name!r} is not the name of a {what}")


@dataclass(frozen=True, slots=True)
class _Way:
    """The way to an account."""

    host: str
    port: int
    user: str
    host_key: str
    known_as: str
    """Its name in `known_hosts`."""
    known_hosts: tuple[str, ...]
    identities: tuple[str, ...]
    identities_only: bool
    """True if the agent is asked for the keys of those files alone."""
    command: str
    """The command that carries the connection; empty for TCP."""

    @property
    def where(self) -> str:
        """The account as messages name it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" if self.port == PORT else f"{self.user}@{host}:{self.port}"


def log_in(account: Account, patience: float = PATIENCE) -> Session:
    """A session of SFTP."""
    with _told(f"cannot read {account.config}"):
        way = _way(account)
    with _told(f"cannot connect to {way.where}"):
        carrier = _Carrier(way)
    try:
        proxy = f" through `{way.command}`" if way.command else ""
        with _told(f"cannot log in to {way.where}{proxy}"):
            channel = carrier.channel(way, patience)
            return Session(channel, way.where, patience=patience, is_openssh=carrier.is_openssh)
    except BaseException:
        carrier.close()
        raise


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise what goes wrong with that said before it."""
    try:
        yield
    except TimeoutError:
        raise TransportFailed("", f"{what}: no answer within {TIMEOUT:.0f} s") from None
    except OSError as error:
        raise TransportFailed("", f"{what}: {error.strerror or error}") from None
    except UnicodeError:  # Of the encoding of names, whose own words (IDNA) help nobody.
        raise TransportFailed("", f"{what}: no host can have that name") from None
    except (paramiko.SSHException, EOFError, ValueError) as error:
        raise TransportFailed("", f"{what}: {_words(error)}") from None


class _Refused(paramiko.SSHException):
    """Why we do not log in."""


# -- the connection


class _Carrier:
    """A connection to the server: TCP, or the standard input and output of a command."""

    def __init__(self, way: _Way) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if way.command:
            self._socket, other = socket.socketpair()
            with other:
                fd = other.fileno()
                self._process = subprocess.Popen(["/bin/sh", "-c", f"exec {way.command}"], stdin=fd, stdout=fd)
        else:
            self._socket = socket.create_connection((way.host, way.port), TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":  # So that who waits to send is told, too, that nobody takes it.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(PATIENCE * 1000))
        self._connection = paramiko.Transport(self._socket)  # Compression is off unless asked for.
        self._channel: paramiko.Channel | None = None

    def channel(self, way: _Way, patience: float) -> Self:
        """Log in, and open the one channel there is; it is then used by `recv` and `sendall`, which wait so long."""
        connection = self._connection
        connection.banner_timeout = connection.handshake_timeout = connection.auth_timeout = TIMEOUT
        known = _Known(way)
        known.prefer(connection.get_security_options())
        connection.start_client(timeout=TIMEOUT)
        known.check(connection.get_remote_server_key())
        _authenticate(connection, way)
        self._channel = connection.open_session(window_size=WINDOW, timeout=TIMEOUT)
        # What comes next is sent with it, a trip sooner: who is refused finds the channel closed. A paramiko without
        # that function waits for the answer.
        setattr(self._channel, "_wait_for_event", lambda: None)  # noqa: B010 - mypy knows no such function
        self._channel.invoke_subsystem("sftp")
        self._channel.settimeout(patience)
        return self

    @property
    def is_openssh(self) -> bool:
        """True if the server says that it is OpenSSH's."""
        return str(self._connection.remote_version).startswith("SSH-2.0-OpenSSH")

    def recv(self, nbytes: int, /) -> bytes:
        """Wait for bytes."""
        assert self._channel is not None, "it is given by `channel`"
        received: bytes = self._channel.recv(nbytes)
        error = None if received else self._connection.get_exception()
        if error is not None:
            raise OSError(_words(error))
        return received

    def sendall(self, s: bytes, /) -> None:
        """Take all of them."""
        assert self._channel is not None, "it is given by `channel`"
        try:
            self._channel.sendall(s)
        except (paramiko.SSHException, EOFError) as error:
            raise OSError(_words(error)) from None

    def hang_up(self) -> None:
        """Let paramiko's own thread see the end, and by it whoever waits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it; twice is nothing."""
        self._connection.close()
        self._socket.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _words(error: BaseException) -> str:
    said = (error.strerror if isinstance(error, OSError) else "") or str(error) or "the server ended the connection"
    if not said.startswith(NO_BANNER):
        return said
    why = said.removeprefix(NO_BANNER).strip()
    return f"the server ended the connection before it said anything{f' ({why})' if why else ''}"


# -- what the configuration says


def _way(account: Account) -> _Way:
    options = _options(account)
    host = str(options.get("hostname", account.host))
    port = int(options.get("port", PORT))
    known = str(options.get("hostkeyalias", host))
    command = str(options.get("proxycommand") or "")
    if not command and (hops := _hops(account)):
        command = _through(hops, f"[{host}]:{port}")
    files = [
        *(str(options.get("userknownhostsfile", "")).split() or KNOWN_HOSTS),
        *(str(options.get("globalknownhostsfile", "")).split() or SYSTEM_KNOWN_HOSTS),
    ]
    return _Way(
        host=host,
        port=port,
        user=account.user or str(options.get("user", "")) or getpass.getuser(),
        host_key=account.host_key,
        known_as=known if port == PORT or "hostkeyalias" in options else f"[{known}]:{port}",
        known_hosts=tuple(map(os.path.expanduser, files)),
        identities=tuple(map(os.path.expanduser, options.get("identityfile", IDENTITIES))),
        identities_only=options.get("identitiesonly", "no") == "yes",
        command=command,
    )


def _hops(account: Account) -> list[str]:
    """The hosts to log in to on the way, the first one first: those on the way to that one, too."""
    hops: list[str] = []
    seen = set[str]()
    while account.host not in seen:
        seen.add(account.host)
        options = _options(account)
        jump = str(options.get("proxyjump", "none"))
        if jump == "none" or options.get("proxycommand"):
            break
        hops = [*jump.split(","), *hops]
        account = dataclasses.replace(account, host=_host_of(hops[0]), port=0)
    return hops


def _host_of(hop: str) -> str:
    """The host of `[USER@]HOST[:PORT]` or `ssh://[USER@]HOST[:PORT]`."""
    return urlsplit(_as_url(hop)).hostname or ""


def _as_url(hop: str) -> str:
    return hop if hop.startswith("ssh://") else f"ssh://{hop}"


def _through(hops: Sequence[str], target: str) -> str:
    """The command that leads through them: what ssh itself does, but that none of them asks for a passphrase, or if a
    host is the right one: `ssh -J` says so to the last one alone."""
    command = ""
    for number, hop in enumerate(hops, 1):
        is_last = number == len(hops)
        # Whoever runs a `ProxyCommand` puts host and port into it, and makes one of two percent signs.
        inner = command if is_last else command.replace("%", "%%")
        before = ["-o", f"ProxyCommand={inner}"] if inner else []
        words = ["ssh", "-o", "BatchMode=yes", *before, "-W", target if is_last else "[%h]:%p", _as_url(hop)]
        command = shlex.join(words)
    return command


def _options(account: Account) -> Mapping[str, Any]:
    """The settings of a host in the file; values are strings, but for lists of files."""
    config = paramiko.SSHConfig()
    if account.port:  # What is said first holds, in a command too.
        config.parse(io.StringIO(f"Host *\nPort {account.port}\n"))
    path = os.path.expanduser(account.config)
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="surrogateescape") as lines:
        config.parse(lines)  # In a comment or a path there are any bytes.
    return config.lookup(account.host)


# -- whose host it is


class _Known:
    """The keys that are known of a host."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._keys: set[tuple[str, bytes]] = set()
        """Type and bytes."""
        self._revoked: set[bytes] = set()
        for path in way.known_hosts:
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._learn(line.split())

    def _learn(self, words: Sequence[str]) -> None:
        marker, *rest = words if words and words[0].startswith("@") else ("", *words)
        if len(rest) < 3 or rest[0].startswith("#") or not _is_of(self._way.known_as, rest[0]):
            return
        with contextlib.suppress(ValueError):  # A line that is damaged is none.
            key = base64.b64decode(rest[2], validate=True)
            if marker == "@revoked":
                self._revoked.add(key)
            elif not marker:
                self._keys.add((rest[1], key))

    def prefer(self, options: paramiko.SecurityOptions) -> None:
        """Ask for a key of a type that is known: a host may have several."""
        types = {kind for kind, _ in self._keys}
        names = list(options.key_types)
        options.key_types = sorted(names, key=lambda name: RSA.get(name, name) not in types)

    def check(self, key: paramiko.PKey) -> None:
        """Raise why we do not talk to who has that key."""
        blob, way = key.asbytes(), self._way
        found = fingerprint(blob)
        if blob in self._revoked:
            raise _Refused(f"its key {found} is revoked in known_hosts")
        if way.host_key:
            if way.host_key not in (ANY_KEY, found):
                raise _Refused(f"its key is {found}, not {way.host_key}")
        elif not self._keys:
            raise _Refused(f"nobody knows its key, {found}: ssh to it once, or say so: ?host-key={found}")
        elif blob not in {known for _, known in self._keys}:
            where = " ".join(way.known_hosts[:1])
            raise _Refused(f"its key is {found}, which is not the one in {where}: it was made anew, or is another's")


def fingerprint(blob: bytes) -> str:
    """A key's, as `ssh-keygen -l` shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _is_of(host: str, patterns: str) -> bool:
    """Tell whether a line of `known_hosts` is about that host: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT."""
    found = False
    for pattern in patterns.lower().split(",") if not patterns.startswith("|1|") else [patterns]:
        if pattern.startswith("|1|"):
            _, _, salt, digest = (pattern.split("|") + [""] * 4)[:4]
            with contextlib.suppress(ValueError):
                is_it = hmac.new(base64.b64decode(salt), host.lower().encode(), "sha1").digest()
                found = found or is_it == base64.b64decode(digest)
            continue
        wanted = re.escape(pattern.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(wanted, host.lower()):
            if pattern.startswith("!"):
                return False
            found = True
    return found


# -- who we are


def _authenticate(connection: paramiko.Transport, way: _Way) -> None:
    """Try one key after the other."""
    tried: list[str] = []
    with contextlib.closing(paramiko.Agent()) as agent:
        for name, key in _keys(way, agent, tried):
            try:
                more = connection.auth_publickey(way.user, key)
            except paramiko.BadAuthenticationType as error:
                raise _Refused(f"it takes no keys, only {', '.join(error.allowed_types)}") from None
            except paramiko.AuthenticationException:
                tried.append(name)
            else:
                if not more:
                    return
                raise _Refused(f"it wants more than a key: {', '.join(more)}")
            if not connection.is_active():
                tried.append("then it ended the connection")
                break
    raise _Refused(f"it takes none of our keys ({'; '.join(tried) or 'there are none'})")


def _keys(way: _Way, agent: paramiko.Agent, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Each key with its name; of one that cannot be used `tried` says why. Those in files come first, because whoever
    has many in his agent says in a file which one is meant: a server takes six."""
    offered = set[bytes]()
    for path in way.identities:
        try:
            key = paramiko.PKey.from_path(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, paramiko.SSHException, UnknownKeyType) as error:
            tried.append(f"{path} cannot be used: {_words(error)}")
        else:
            offered.add(key.asbytes())
            yield path, key
    meant = {_public(path) for path in way.identities} if way.identities_only else None
    for key in agent.get_keys():
        blob = key.asbytes()
        if blob not in offered and (meant is None or blob in meant):
            yield f"the agent's {fingerprint(blob)}", key


def _public(identity: str) -> bytes:
    """The public key that lies beside one, or is named in its stead; nothing where there is none."""
    path = f"{identity.removesuffix('.pub')}.pub"
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb") as line:
        return base64.b64decode(line.read().split()[1], validate=True)
    return b""
