"""Log in to an account over SSH as `ssh` does, with `~/.ssh/config`, `known_hosts`, the agent and the keys in files.
The user is never asked for anything. A failed login is an error of one line that lists the attempts.
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
"""Timeout in seconds of the connection and of each step of the login, the same as for hpss:// URLs."""

WINDOW = 16 * 1024 * 1024
"""Bytes that the server may send before the client confirms that they were read. A session requests fewer at once, so
the server never waits for a confirmation on a long link."""

CONFIG = "~/.ssh/config"
KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
"""The files in which OpenSSH looks for keys by default."""

ANY_KEY = "any"
"""The value given instead of a fingerprint to accept any key of the host."""

PORT = 22

RSA = {"rsa-sha2-512": "ssh-rsa", "rsa-sha2-256": "ssh-rsa"}
"""Signature algorithm -> key type, where the two have different names."""

NO_BANNER = "Error reading SSH protocol banner"
"""The start of paramiko's message about a server that sent no greeting; the system's own message may follow."""

logging.getLogger("paramiko").addHandler(logging.NullHandler())
# Paramiko raises its errors too; without a handler they would also be printed.


@dataclass(frozen=True, slots=True)
class Account:
    """The account to log in to. An empty `user` and a `port` of 0 are replaced by the values of the configuration."""

    host: str
    user: str = ""
    port: int = 0
    host_key: str = ""
    """The fingerprint of the host's key (`SHA256:...`) or `any`. If it is empty, the key must be in `known_hosts`."""
    config: str = CONFIG

    def __post_init__(self) -> None:
        """Refuse names that would be options or shell syntax in a `ProxyCommand`, which may contain them."""
        for what, name, signs in (("host", self.host, "._-:%"), ("user", self.user, "._-+@\\")):
            if name.startswith("-") or name.endswith("\\") or not all(sign.isalnum() or sign in signs for sign in name):
                raise ValueError(f"{name!r} is not the name of a {what}")


@dataclass(frozen=True, slots=True)
class _Way:
    """The settings for reaching an account, as the configuration gives them."""

    host: str
    port: int
    user: str
    host_key: str
    known_as: str
    """The host's name in `known_hosts`."""
    known_hosts: tuple[str, ...]
    identities: tuple[str, ...]
    identities_only: bool
    """True if the agent may only offer the keys of `identities`."""
    command: str
    """The command that carries the connection; empty for TCP."""

    @property
    def where(self) -> str:
        """The account in the form that messages use, without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" if self.port == PORT else f"{self.user}@{host}:{self.port}"


def log_in(account: Account, patience: float = PATIENCE) -> Session:
    """Connect, log in and return an SFTP session. `patience`: its timeout in seconds, as `sftp_session.PATIENCE`.

    Raises:
        TransportFailed: the configuration, the connection or the login failed.
    """
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
    """Raise errors of the block as `TransportFailed`, with `what` at the start of the message."""
    try:
        yield
    except TimeoutError:
        raise TransportFailed("", f"{what}: no answer within {TIMEOUT:.0f} s") from None
    except OSError as error:
        raise TransportFailed("", f"{what}: {error.strerror or error}") from None
    except UnicodeError:  # The encoding of host names (IDNA) has messages that do not help a user.
        raise TransportFailed("", f"{what}: it is not a valid host name") from None
    except (paramiko.SSHException, EOFError, ValueError) as error:
        raise TransportFailed("", f"{what}: {_words(error)}") from None


class _Refused(paramiko.SSHException):
    """The login is refused, by this client or by the server; the message gives the reason."""


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
            if sys.platform == "linux":  # A blocked send also needs a timeout.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(PATIENCE * 1000))
        self._connection = paramiko.Transport(self._socket)  # Compression is off unless asked for.
        self._channel: paramiko.Channel | None = None

    def channel(self, way: _Way, patience: float) -> Self:
        """Log in and open the only channel. `recv` and `sendall` then use it with a timeout of `patience` seconds."""
        connection = self._connection
        connection.banner_timeout = connection.handshake_timeout = connection.auth_timeout = TIMEOUT
        known = _Known(way)
        known.prefer(connection.get_security_options())
        connection.start_client(timeout=TIMEOUT)
        known.check(connection.get_remote_server_key())
        _authenticate(connection, way)
        self._channel = connection.open_session(window_size=WINDOW, timeout=TIMEOUT)
        # Do not wait for the answer to the subsystem request: that saves a round trip. If the server refuses, the
        # channel is found closed. A paramiko without this function waits for the answer.
        setattr(self._channel, "_wait_for_event", lambda: None)  # noqa: B010 - mypy knows no such function
        self._channel.invoke_subsystem("sftp")
        self._channel.settimeout(patience)
        return self

    @property
    def is_openssh(self) -> bool:
        """True if the server identifies itself as OpenSSH."""
        return str(self._connection.remote_version).startswith("SSH-2.0-OpenSSH")

    def recv(self, nbytes: int, /) -> bytes:
        """Wait for bytes and return at most `nbytes` of them; empty at the end."""
        assert self._channel is not None, "it is given by `channel`"
        received: bytes = self._channel.recv(nbytes)
        error = None if received else self._connection.get_exception()
        if error is not None:
            raise OSError(_words(error))
        return received

    def sendall(self, s: bytes, /) -> None:
        """Send all of `s`."""
        assert self._channel is not None, "it is given by `channel`"
        try:
            self._channel.sendall(s)
        except (paramiko.SSHException, EOFError) as error:
            raise OSError(_words(error)) from None

    def hang_up(self) -> None:
        """Shut the socket down. Paramiko's own thread then ends the channel and every wait on it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and end its command. A second call does nothing."""
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


# -- the configuration


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
    """Return the jump hosts in the order of the connection. If the first has jump hosts itself, they precede it."""
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
    """Return the host of `[USER@]HOST[:PORT]` or `ssh://[USER@]HOST[:PORT]`."""
    return urlsplit(_as_url(hop)).hostname or ""


def _as_url(hop: str) -> str:
    return hop if hop.startswith("ssh://") else f"ssh://{hop}"


def _through(hops: Sequence[str], target: str) -> str:
    """Return the command that connects to `target` through `hops`, as ssh itself builds it. Here each ssh runs with
    `BatchMode`, so none asks for a passphrase or about a host's key; `ssh -J` sets that for the last one alone."""
    command = ""
    for number, hop in enumerate(hops, 1):
        is_last = number == len(hops)
        # ssh replaces %h, %p and %% in a `ProxyCommand`, so percent signs of an inner command are doubled.
        inner = command if is_last else command.replace("%", "%%")
        before = ["-o", f"ProxyCommand={inner}"] if inner else []
        words = ["ssh", "-o", "BatchMode=yes", *before, "-W", target if is_last else "[%h]:%p", _as_url(hop)]
        command = shlex.join(words)
    return command


def _options(account: Account) -> Mapping[str, Any]:
    """Return the settings of a host in the configuration file. Values are strings, or lists of files."""
    config = paramiko.SSHConfig()
    if account.port:  # The first value of a setting holds, in `%p` of a command too.
        config.parse(io.StringIO(f"Host *\nPort {account.port}\n"))
    path = os.path.expanduser(account.config)
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="surrogateescape") as lines:
        config.parse(lines)  # A comment or a path may have bytes that are not UTF-8.
    return config.lookup(account.host)


# -- the host's key


class _Known:
    """The known and revoked keys of a host."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._keys: set[tuple[str, bytes]] = set()
        """The type and the bytes of each known key."""
        self._revoked: set[bytes] = set()
        for path in way.known_hosts:
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._learn(line.split())

    def _learn(self, words: Sequence[str]) -> None:
        marker, *rest = words if words and words[0].startswith("@") else ("", *words)
        if len(rest) < 3 or rest[0].startswith("#") or not _is_of(self._way.known_as, rest[0]):
            return
        with contextlib.suppress(ValueError):  # Ignore a damaged line.
            key = base64.b64decode(rest[2], validate=True)
            if marker == "@revoked":
                self._revoked.add(key)
            elif not marker:
                self._keys.add((rest[1], key))

    def prefer(self, options: paramiko.SecurityOptions) -> None:
        """Prefer key types for which a key is known, since a host may have keys of several types."""
        types = {kind for kind, _ in self._keys}
        names = list(options.key_types)
        options.key_types = sorted(names, key=lambda name: RSA.get(name, name) not in types)

    def check(self, key: paramiko.PKey) -> None:
        """Check the key of the host.

        Raises:
            _Refused: the key is revoked, unknown or not the expected one.
        """
        blob, way = key.asbytes(), self._way
        found = fingerprint(blob)
        if blob in self._revoked:
            raise _Refused(f"its key {found} is revoked in known_hosts")
        if way.host_key:
            if way.host_key not in (ANY_KEY, found):
                raise _Refused(f"its key is {found}, not {way.host_key}")
        elif not self._keys:
            raise _Refused(
                f"its key {found} is not in known_hosts: log in once with ssh, or add ?host-key={found} to the URL"
            )
        elif blob not in {known for _, known in self._keys}:
            where = " ".join(way.known_hosts[:1])
            raise _Refused(f"its key is {found}, not the one in {where}: it was replaced, or another machine answers")


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a key in the form of `ssh-keygen -l`."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _is_of(host: str, patterns: str) -> bool:
    """Tell whether the patterns of a `known_hosts` line match `host` (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT)."""
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


# -- the user's keys


def _authenticate(connection: paramiko.Transport, way: _Way) -> None:
    """Try one key after the other until the server accepts one.

    Raises:
        _Refused: the server accepts no key, or requires more than a key.
    """
    tried: list[str] = []
    with contextlib.closing(paramiko.Agent()) as agent:
        for name, key in _keys(way, agent, tried):
            try:
                more = connection.auth_publickey(way.user, key)
            except paramiko.BadAuthenticationType as error:
                raise _Refused(f"it accepts no keys, only {', '.join(error.allowed_types)}") from None
            except paramiko.AuthenticationException:
                tried.append(name)
            else:
                if not more:
                    return
                raise _Refused(f"it requires more than a key: {', '.join(more)}")
            if not connection.is_active():
                tried.append("then it ended the connection")
                break
    raise _Refused(f"it accepts none of your keys ({'; '.join(tried) or 'there are none'})")


def _keys(way: _Way, agent: paramiko.Agent, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Yield each key with its name. Add unusable keys to `tried`, with the reason. Keys in files come first: a server
    accepts six attempts, and a user with many keys in the agent usually names the right key in a file."""
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
    """Return the public key of an identity file, which may itself be a `.pub` file; `b""` if it cannot be read."""
    path = f"{identity.removesuffix('.pub')}.pub"
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb") as line:
        return base64.b64decode(line.read().split()[1], validate=True)
    return b""
