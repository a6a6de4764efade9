"""Protocol errors; they never share a tree with what a verb may raise: a bad peer cannot look like a missing file."""

from __future__ import annotations


class ProtocolError(Exception):
    """The rules of the wire were broken."""


class LocalProtocolError(ProtocolError):
    """This side tried to send what the rules forbid: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the rules forbid: what was expected and what came."""
