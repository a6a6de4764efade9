"""Protocol errors. They have no base class in common with errors of verbs: a bad peer cannot look like a missing file.

ProtocolError
├── LocalProtocolError         a bug of ours; nothing was sent, and the connection is as before
└── RemoteProtocolError        a mistake of the peer; the connection is unusable
    ├── NotHpss                the peer's first bytes are of another protocol
    └── Interrupted            the peer's bytes ended too early
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The rules of the wire were broken."""


class LocalProtocolError(ProtocolError):
    """This side tried to send something that the protocol forbids. It is a bug of this side."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol. The message names the expected and the received bytes or state."""


class NotHpss(RemoteProtocolError):
    """The first bytes of the peer are not the opening line of the protocol. A server may still have read the request,
    for example after the greeting of a login shell."""


class Interrupted(RemoteProtocolError):
    """The peer's bytes ended too early. The message names the expected bytes. A retry on another connection may
    help."""
