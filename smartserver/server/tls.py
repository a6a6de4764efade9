"""The server's certificate and key for TLS: `KeyPair`, read again when either file changes. `make_key_pair` makes a
self-signed one, whose fingerprint a client confirms once.
"""

from __future__ import annotations

import datetime
import logging
import os
import socket
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from zope.interface import implementer

from smartserver.wire.tls import ALPN, fingerprint

log = logging.getLogger("smartserver")

CERTIFICATE, KEY = "certificate.pem", "key.pem"
"""Files of a certificate that was made here."""

YEARS = 20
"""For which that is valid: clients trust its fingerprint, which does not expire."""


class BadKeyPair(Exception):
    """A certificate and key that cannot be used; the message names the file."""


@implementer(IOpenSSLServerConnectionCreator)
class KeyPair:
    """A certificate with its chain, and its key, as PEM files. Twisted asks it for each connection."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read them.

        Raises:
            BadKeyPair: they cannot be read, or do not belong together.
        """
        self._files = (certificate, key)
        self._seen = self._signature()
        self._context = _context(certificate, key)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate as its file has it now, as ssh writes those of keys."""
        content = self._files[0].read_text(encoding="ascii", errors="replace")
        der = ssl.PEM_cert_to_DER_cert(content[: content.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)])
        return fingerprint(der)

    def serverConnectionForTLS(self, protocol: object) -> SSL.Connection:
        """TLS for one connection, by the files as they are now; by those before where they cannot be used."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = _context(*self._files)
                log.warning("%s: the new certificate is in use", self._files[0])
            except BadKeyPair as wrong:
                log.warning("%s; the certificate in use stays the one before", wrong)
        return SSL.Connection(self._context, None)

    def _signature(self) -> tuple[object, ...]:
        """What changes with the files."""
        try:
            found = [os.stat(each) for each in self._files]
        except OSError:
            return ()
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


def _context(certificate: Path, key: Path) -> SSL.Context:
    made = SSL.Context(SSL.TLS_SERVER_METHOD)
    made.set_min_proto_version(SSL.TLS1_3_VERSION)
    made.set_alpn_select_callback(_select)
    made.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    made.set_mode(SSL.MODE_RELEASE_BUFFERS)  # An idle connection keeps no buffers: 34 KB each.
    for file, use in ((certificate, made.use_certificate_chain_file), (key, made.use_privatekey_file)):
        try:
            file.open("rb").close()
            use(str(file))
        except OSError as wrong:
            raise BadKeyPair(f"{file}: {wrong.strerror}") from None
        except SSL.Error:
            wanted = "a certificate" if file == certificate else f"the key of {certificate}, without a passphrase,"
            raise BadKeyPair(f"{file}: expected {wanted} in PEM form") from None
    return made


def _select(_: SSL.Connection, offered: list[bytes]) -> Any:
    """Choose our protocol (RFC 7301). A client that does not offer it ends the connection itself, and says why."""
    ours = ALPN.encode()
    return ours if ours in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def make_key_pair(folder: Path) -> tuple[Path, Path]:
    """The self-signed certificate and its key in a folder, made where they are not there. A second server that starts
    at the same time finds the first one's, since the certificate comes last and neither is replaced.

    Raises:
        BadKeyPair: the folder cannot be written to.
    """
    certificate, key = folder / CERTIFICATE, folder / KEY
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not key.exists():
            content = ec.generate_private_key(ec.SECP256R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            _publish(key, content)
        if not certificate.exists():
            _publish(certificate, _self_signed(key.read_bytes()))
    except (OSError, ValueError) as wrong:
        raise BadKeyPair(f"{folder}: no certificate can be made: {wrong}") from None
    return certificate, key


def _publish(file: Path, content: bytes) -> None:
    """Write a file whole, unless there is one by now."""
    part = file.with_suffix(f".{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        try:
            os.link(part, file)
        except FileExistsError:
            return
    finally:
        part.unlink()


def _self_signed(key: bytes) -> bytes:
    private = serialization.load_pem_private_key(key, None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"expected a key of an elliptic curve in {KEY}")
    host = socket.gethostname()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # A client's clock may be behind.
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host), x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)
