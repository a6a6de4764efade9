"""The protocol over TLS: the constants of both ends, and the fingerprint of a certificate."""

from __future__ import annotations

import base64
import hashlib

ALPN = "hpss/1"
"""The name of the protocol in ALPN (RFC 7301)."""

HANDSHAKE = 0x16
"""The first byte of a client with TLS: a record of the type `handshake` (RFC 8446, 5.1). No other client sends it."""


def fingerprint(content: bytes) -> str:
    """Return the SHA-256 of a certificate in DER, or of a public key of OpenSSH, in the form of OpenSSH."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
