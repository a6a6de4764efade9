"""TLS over TCP, by the standard library. Nothing is sent before the server's certificate is checked."""

from __future__ import annotations

import socket
import ssl

from smartserver.client.media.ready import ready
from smartserver.client.media.tcp import CONNECT_TIMEOUT, TcpMedium
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.trust import Trust
from smartserver.spans import Part, measured, span
from smartserver.wire.limits import RECEIVE_CHUNK
from smartserver.wire.tls import ALPN, fingerprint

NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons for a server that does not speak TLS: its first bytes are no record, or it closes."""

OF_TIME = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


class TlsMedium:
    """A TLS connection; implements `Medium`."""

    def __init__(self, host: str, port: int, trust: Trust) -> None:
        """Connect, and check the server's certificate."""
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._got = b""
        """Decrypted bytes that were not read yet."""
        self._ended = False
        try:
            context = _context(trust)
        except OSError as error:
            why = error.strerror if not isinstance(error, ssl.SSLError) else "it has no certificate in PEM form"
            raise CannotConnect(self._where, f"{trust.ca}: {why}") from None
        self._socket = self._secured(TcpMedium(host, port).detach(), host, trust, context)

    def _secured(self, plain: socket.socket, host: str, trust: Trust, context: ssl.SSLContext) -> ssl.SSLSocket:
        plain.settimeout(CONNECT_TIMEOUT)
        try:
            with span(Part.CONNECT, "TLS"):
                made = context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise CannotConnect(self._where, self._why(error, trust)) from None
        why = ""
        found = fingerprint(made.getpeercert(binary_form=True) or b"")
        if trust.fingerprint and found != trust.fingerprint:
            why = f"its certificate has changed: expected {trust.fingerprint}, got {found}. Somebody may be listening"
            why += f" in. If its owner has a new one, run `smartserver trust {self._where}`"
        elif made.selected_alpn_protocol() != ALPN:
            why = "it speaks TLS, but not hpss"
        if why:
            made.close()
            raise CannotConnect(self._where, why)
        made.setblocking(False)
        return made

    def _why(self, error: OSError, trust: Trust) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            by = f" by {trust.ca}" if trust.ca else ""
            what_to_do = f"if its owner told you its fingerprint, run `smartserver trust {self._where}`"
            if error.verify_code in OF_TIME:
                what_to_do = "check the date of this machine, and ask its owner"
            return f"its certificate is not trusted{by} ({error.verify_message.rstrip('.')}): {what_to_do}"
        if isinstance(error, ssl.SSLError):
            if error.reason in NO_TLS or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                return "it does not speak TLS there (`smartserver serve --tls`)"
            return f"TLS failed: {error.reason or error}"
        if isinstance(error, TimeoutError):
            return f"no answer within {CONNECT_TIMEOUT:.0f} s"
        return f"{error.strerror or error}, in the handshake of TLS"

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until a requested direction is ready; see `Medium.poll`. Messages of TLS itself (new keys, tickets) do
        not count."""
        while True:
            number = self._socket.fileno()
            if read and self.fill():
                return True, write and ready(None, number, 0)[1]
            readable, writable = ready(number if read else None, number if write else None, timeout)
            if not readable or self.fill():
                return readable, writable
            if writable:
                return False, True

    def fill(self) -> bool:
        """Decrypt received bytes. Return True if `read` would not wait."""
        if not self._got and not self._ended:
            try:
                self._got = self._socket.recv(RECEIVE_CHUNK)
                self._ended = not self._got
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except ssl.SSLEOFError:  # TCP ended without the end of TLS: our protocol knows if it is complete.
                self._ended = True
            except OSError as error:
                raise ConnectionLost(error.strerror or str(error)) from None
        return bool(self._got) or self._ended

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes, and wait for the first."""
        while not self.fill():
            ready(self._socket.fileno(), None, None)
        got, self._got = self._got[:size], self._got[size:]
        return got

    def write_some(self, data: memoryview) -> int:
        """Send as many bytes as are accepted without blocking. Return their number."""
        try:
            return self._socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from None

    def close(self) -> None:
        """Close the connection, without waiting for the peer to do so."""
        measured(self._socket)
        self._socket.close()


def _context(trust: Trust) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.set_alpn_protocols([ALPN])
    if trust.fingerprint:  # The user confirmed it: no signature is needed.
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif trust.ca:
        made.load_verify_locations(trust.ca)
    else:
        made.load_default_certs()
    return made
