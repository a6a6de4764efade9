"""The errors of a packet network, apart from those of system calls."""

from __future__ import annotations


class Unavailable(Exception):
    """The system does not support packet networks; the message gives the reason."""


class PacketsError(Exception):
    """A process of the network failed, or the network is closed, so its counts are invalid."""
