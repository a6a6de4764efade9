"""What goes wrong with a packet network, apart from what a system call says itself."""

from __future__ import annotations


class Unavailable(Exception):
    """There are no packet networks here; the message says why, for each way that was tried."""


class PacketsError(Exception):
    """A process of the network failed, or the network is closed; what it measured is worth nothing."""
