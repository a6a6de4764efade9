"""The server's certificate and key for TLS: `KeyPair`, read again when either file changes. `make_key_pair` makes a
self-signed pair, whose fingerprint a client confirms once.
"""

from __future__ import annotations

import datetime
import logging
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from zope.interface import implementer

from smartserver.wire.tls import ALPN, fingerprint

log = logging.getLogger("smartserver")

CERTIFICATE, KEY = "certificate.pem", "key.pem"
"""The files of a certificate that this module generates."""

YEARS = 20
"""Years for which a generated certificate is valid. Clients trust its fingerprint, which does not expire."""


class BadKeyPair(Exception):
    """The certificate and key cannot be used; the message names the file. `is_final`: True if they cannot be used
    before the files change."""

    def __init__(self, why: str, *, is_final: bool = True) -> None:
        super().__init__(why)
        self.is_final = is_final


@implementer(IOpenSSLServerConnectionCreator)
class KeyPair:
    """A certificate with its chain, and its key, as PEM files. Twisted gets the TLS object of each connection from
    it."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files.

        Raises:
            BadKeyPair: the files cannot be read, or do not belong together.
        """
        self._files = (certificate, key)
        self._seen = self._signature()
        self._context = _context(certificate, key)
        self._check_dates()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the certificate in use."""
        return fingerprint(self._certificate().public_bytes(serialization.Encoding.DER))

    def _certificate(self) -> x509.Certificate:
        used = SSL.Connection(self._context, None).get_certificate()
        assert used is not None  # `_context` has one.
        return used.to_cryptography()

    def _check_dates(self) -> None:
        """Log a warning if the certificate has expired or is not valid yet. This is called at the start and for each
        connection."""
        used, now = self._certificate(), datetime.datetime.now(datetime.UTC)
        if now > used.not_valid_after_utc:
            log.warning("%s: the certificate expired on %s", self._files[0], used.not_valid_after_utc.date())
        elif now < used.not_valid_before_utc:
            log.warning("%s: the certificate is not valid before %s", self._files[0], used.not_valid_before_utc.date())

    def serverConnectionForTLS(self, protocol: object) -> SSL.Connection:
        """Return the TLS object of a new connection, made from the current files. If they cannot be used, the previous
        ones are used."""
        seen = self._signature()
        if seen != self._seen:
            try:
                self._context = _context(*self._files)
                log.warning("%s: the new certificate is in use", self._files[0])
                self._seen = seen
            except BadKeyPair as error:
                log.warning("%s; the certificate in use stays the one before", error)
                if error.is_final:
                    self._seen = seen
        self._check_dates()
        return SSL.Connection(self._context, None)

    def _signature(self) -> tuple[object, ...]:
        """Return a value that changes with the files."""
        try:
            found = [os.stat(file) for file in self._files]
        except OSError:
            return ()
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


def _note_step(connection: SSL.Connection, where: int, _: int) -> None:
    """Report a protocol step of TLS to the protocol object of its connection."""
    if where == SSL.SSL_CB_ACCEPT_LOOP and (layer := connection.get_app_data()) is not None:  # Twisted's.
        layer.wrappedProtocol.note_tls_step()


def _context(certificate: Path, key: Path) -> SSL.Context:
    made = SSL.Context(SSL.TLS_SERVER_METHOD)
    made.set_min_proto_version(SSL.TLS1_3_VERSION)
    made.set_info_callback(_note_step)
    made.set_alpn_select_callback(_select)
    try:
        private = key.read_bytes()
        certificate.open("rb").close()
    except OSError as error:
        raise BadKeyPair(f"{error.filename}: {error.strerror}", is_final=False) from None
    try:
        made.use_certificate_chain_file(str(certificate))
    except SSL.Error:
        raise BadKeyPair(f"{certificate}: expected a certificate in PEM form") from None
    try:
        made.use_privatekey(_private_key(private))
        made.check_privatekey()
    except (SSL.Error, ValueError, TypeError):  # TypeError: the key has a passphrase.
        why = f"expected the RSA, EC or Ed25519 key of {certificate}, without a passphrase, in PEM form"
        raise BadKeyPair(f"{key}: {why}") from None
    return made


def _private_key(content: bytes) -> RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey:
    found = serialization.load_pem_private_key(content, None)
    if not isinstance(found, (RSAPrivateKey, EllipticCurvePrivateKey, Ed25519PrivateKey)):
        raise ValueError("a key of another kind")
    return found


def _select(_: SSL.Connection, offered: list[bytes]) -> Any:
    """Choose our protocol (ALPN, RFC 7301) if a client offers it. The client checks the choice."""
    ours = ALPN.encode()
    return ours if ours in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def make_key_pair(folder: Path) -> tuple[Path, Path]:
    """Return the files of the self-signed certificate and key in a folder. They are created if they are missing.
    Servers that start at the same time use the same pair, because the certificate is written last and neither file is
    replaced.

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
    except (OSError, ValueError) as error:
        raise BadKeyPair(f"{folder}: no certificate can be made: {error}") from None
    return certificate, key


def _publish(file: Path, content: bytes) -> None:
    """Write a file atomically, unless it already exists."""
    part = file.with_suffix(f".{secrets.token_hex(8)}")
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
