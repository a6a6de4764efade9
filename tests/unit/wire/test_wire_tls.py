"""wire.tls: what a certificate is called."""

from __future__ import annotations

import base64
import hashlib

from smartserver.wire.tls import fingerprint


def test_a_fingerprint_is_written_as_openssh_writes_those_of_keys() -> None:
    kind, _, digest = fingerprint(b"a certificate").partition(":")
    assert kind == "SHA256"
    assert "=" not in digest
    assert base64.b64decode(digest + "=") == hashlib.sha256(b"a certificate").digest()
