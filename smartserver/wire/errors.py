"""Protocol errors; they never share a tree with what a verb may raise: a bad peer cannot look like a missing file.

ProtocolError
├── LocalProtocolError         a bug of ours; nothing was sent, the connection is as before
└── RemoteProtocolError        theirs; the connection is of no more use
    ├── NotHpss                their first bytes are of another protocol
    └── Interrupted            their bytes ended in the middle of something
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The rules of the wire were broken."""


class LocalProtocolError(ProtocolError):
    """This side tried to send what the rules forbid: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the rules forbid: what was expected and what came."""


class NotHpss(RemoteProtocolError):
    """The peer did not open as the protocol has it; there may be one behind it that read a request all the same."""


class Interrupted(RemoteProtocolError):
    """The peer's bytes ended in the middle: what was still expected. Asking again elsewhere may help."""
