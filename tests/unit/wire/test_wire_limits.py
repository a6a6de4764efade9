"""Relations between limits (those of other layers: tests/house/test_limits.py), and what a certificate is called."""

from __future__ import annotations

import base64
import hashlib

from smartserver.wire import frames, limits
from smartserver.wire.tls import fingerprint


def test_frames_fit_their_fields() -> None:
    assert limits.MAX_FRAME < 1 << 32
    assert limits.PIECE % limits.MAX_FRAME == 0
    assert max(most for _, most in frames.SIZES.values()) == limits.MAX_FRAME
    assert set(frames.SIZES) == set(frames.FrameType)
    assert max(frames.FrameType) < frames.IGNORED_FROM


def test_order() -> None:
    assert limits.INITIAL_WINDOW < limits.RECEIVE_CHUNK <= limits.MAX_FRAME < limits.MAX_MESSAGE
    assert limits.PING_INTERVAL < limits.IDLE_TIMEOUT < limits.STALL_TIMEOUT < limits.KEEP_IDLE


def test_a_client_that_asks_one_thing_after_the_other_meets_no_bound_on_what_it_has_not_read() -> None:
    """A reply of any length counts as one; beside it only PONGs, one in `PING_INTERVAL`, may lie unread."""
    day = 86_400
    assert day / limits.PING_INTERVAL * (limits.MAX_PING + 9) < limits.UNREAD_BYTES
    assert limits.MAX_OPEN_REQUESTS * 2 * limits.INITIAL_WINDOW < limits.UNREAD_BYTES


def test_a_fingerprint_is_written_as_openssh_writes_those_of_keys() -> None:
    kind, _, digest = fingerprint(b"a certificate").partition(":")
    assert kind == "SHA256"
    assert "=" not in digest
    assert base64.b64decode(digest + "=") == hashlib.sha256(b"a certificate").digest()
