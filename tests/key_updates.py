"""A TLS 1.3 client that asks for new keys (RFC 8446, 4.6.3), which Python's ssl cannot say."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

CIPHER = "TLS_AES_256_GCM_SHA384"
REQUESTED = bytes.fromhex("18 000001 01")
"""A KeyUpdate that wants one in return."""


class Client:
    """Its side of a connection, in memory: `step` takes what came and gives what is to be sent."""

    def __init__(self, keys: Path) -> None:
        """`keys`: a file to be made, into which its ssl writes the secrets of the connection."""
        self._keys = keys
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(keys)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        self.ready = False

    def step(self, received: bytes = b"") -> bytes:
        """Go on with the handshake."""
        self._in.write(received)
        try:
            self._tls.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        return self._out.read()

    def key_updates(self) -> Iterator[bytes]:
        """Records, each of which asks for new keys; nothing else may be sent after the handshake."""
        chosen = self._tls.cipher()
        assert chosen is not None
        assert chosen[0] == CIPHER
        said = dict(line.rsplit(" ", 1) for line in self._keys.read_text().splitlines())
        (secret,) = (bytes.fromhex(value) for name, value in said.items() if name.startswith("CLIENT_TRAFFIC_SECRET_0"))
        while True:
            # Each is the first record (number 0) under its key.
            key, nonce = _expand(secret, b"key", 32), _expand(secret, b"iv", 12)
            content = REQUESTED + b"\x16"
            head = b"\x17\x03\x03" + (len(content) + 16).to_bytes(2, "big")
            yield head + AESGCM(key).encrypt(nonce, content, head)
            secret = _expand(secret, b"traffic upd", 48)


def _expand(secret: bytes, label: bytes, length: int) -> bytes:
    name = b"tls13 " + label
    said = length.to_bytes(2, "big") + bytes((len(name),)) + name + b"\0"
    return HKDFExpand(hashes.SHA384(), length, said).derive(secret)
