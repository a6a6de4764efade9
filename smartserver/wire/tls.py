"""The protocol over TLS: the constants of both ends, and the fingerprint of a certificate."""

from __future__ import annotations

import base64
import hashlib

ALPN = "hpss/1"
"""The name of the protocol in ALPN (RFC 7301)."""

HANDSHAKE = 0x16
"""The first byte that a client with TLS sends, the record type `handshake` (RFC 8446, 5.1). No other client begins with
it."""


def fingerprint(content: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate (DER) or an OpenSSH public key, in the notation of OpenSSH."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
