"""The errors of a packet network, apart from those of system calls."""

from __future__ import annotations


class Unavailable(Exception):
    """There are no packet networks here; the message says why."""


class PacketsError(Exception):
    """A process of the network failed, or the network is closed; what it measured is worth nothing."""
