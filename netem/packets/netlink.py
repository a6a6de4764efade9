"""The part of rtnetlink that a link needs: create and configure interfaces in the thread's network namespace.

Formats: rtnetlink(7), linux/rtnetlink.h and linux/if_link.h. It needs only the standard library and no command. Each
function raises `OSError` with the name of the step if the kernel refuses it.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct

_NEWLINK, _NEWADDR, _NEWROUTE, _NEWNEIGHBOUR = 16, 20, 24, 28
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 1, 4, 0x100, 0x200, 0x400
_ERROR = 2
_NESTED = 0x8000

_LINK_ADDRESS, _LINK_NAME, _LINK_MTU, _LINK_QUEUE, _LINK_DETAILS, _LINK_NAMESPACE = 1, 3, 4, 13, 18, 28
_DETAILS_KIND, _DETAILS_PARAMETERS, _VETH_PEER = 1, 2, 1
_UP = 1
_ADDRESS, _LOCAL = 1, 2
_ROUTE_DESTINATION, _ROUTE_INTERFACE, _ROUTE_METRICS = 1, 4, 8
_METRIC_WINDOW, _METRIC_CONGESTION = 11, 16
_NEIGHBOUR_ADDRESS, _NEIGHBOUR_HARDWARE, _PERMANENT = 1, 2, 0x80
_TABLE_MAIN, _PROTOCOL_BOOT, _SCOPE_LINK, _UNICAST = 254, 3, 253, 1

_MESSAGE = struct.Struct("=IHHII")
"""The header of a message: its length, kind, flags and number, and the sender's port."""

_numbers = itertools.count(1)


def set_up(interface: str, *, mtu: int | None = None, queue: int | None = None) -> None:
    """Bring an interface up. `mtu`: the most bytes of a packet; `queue`: the most packets that wait."""
    attributes = b""
    for kind, number in ((_LINK_MTU, mtu), (_LINK_QUEUE, queue)):
        if number is not None:
            attributes += attribute(kind, struct.pack("=I", number))
    _ask(f"setting up {interface}", _NEWLINK, 0, _link(socket.if_nametoindex(interface), _UP) + attributes)


def add_address(interface: str, address: str, prefix: int) -> None:
    """Give an interface an IPv4 address."""
    packed = socket.inet_aton(address)
    head = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(interface))
    body = attribute(_LOCAL, packed) + attribute(_ADDRESS, packed)
    _ask(f"address {address}", _NEWADDR, _CREATE | _EXCLUSIVE, head + body)


def set_route(interface: str, destination: str, *, congestion: str, initial_window: int) -> None:
    """Route one IPv4 address through an interface, with the TCP metrics of `ip route ... congctl initcwnd`."""
    metrics = attribute(_METRIC_CONGESTION, congestion.encode() + b"\0")
    metrics += attribute(_METRIC_WINDOW, struct.pack("=I", initial_window))
    head = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, _TABLE_MAIN, _PROTOCOL_BOOT, _SCOPE_LINK, _UNICAST, 0)
    body = attribute(_ROUTE_DESTINATION, socket.inet_aton(destination))
    body += attribute(_ROUTE_INTERFACE, struct.pack("=I", socket.if_nametoindex(interface)))
    body += attribute(_ROUTE_METRICS | _NESTED, metrics)
    _ask(f"a route with congestion control {congestion}", _NEWROUTE, _CREATE | _REPLACE, head + body)


def add_neighbour(interface: str, address: str, hardware: bytes) -> None:
    """Set the Ethernet address of an IPv4 address, so that no ARP request goes over the link."""
    head = struct.pack("=BxxxIHBB", socket.AF_INET, socket.if_nametoindex(interface), _PERMANENT, 0, 0)
    body = attribute(_NEIGHBOUR_ADDRESS, socket.inet_aton(address)) + attribute(_NEIGHBOUR_HARDWARE, hardware)
    _ask(f"neighbour {address}", _NEWNEIGHBOUR, _CREATE | _REPLACE, head + body)


def add_pair(name: str, peer: str, namespace: int, *, peer_hardware: bytes) -> None:
    """Make a pair of joined Ethernet interfaces: `name` here, `peer` in the network namespace of a descriptor."""
    other = _link(0, 0) + attribute(_LINK_NAME, peer.encode() + b"\0") + attribute(_LINK_ADDRESS, peer_hardware)
    other += attribute(_LINK_NAMESPACE, struct.pack("=I", namespace))
    kind = attribute(_DETAILS_KIND, b"veth\0")
    kind += attribute(_DETAILS_PARAMETERS | _NESTED, attribute(_VETH_PEER | _NESTED, other))
    body = _link(0, 0) + attribute(_LINK_NAME, name.encode() + b"\0") + attribute(_LINK_DETAILS | _NESTED, kind)
    _ask("a pair of veth interfaces", _NEWLINK, _CREATE | _EXCLUSIVE, body)


def attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute: length, kind, value, and zeros up to a multiple of four."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    """Encode one message to the kernel. The message requests an acknowledgement."""
    return _MESSAGE.pack(_MESSAGE.size + len(body), kind, flags | _REQUEST | _ACK, number, 0) + body


def acknowledged(answer: bytes, number: int) -> int | None:
    """Return the error number in an answer to message `number`, 0 for success; None for another message's answer."""
    _, kind, _, answered, _ = _MESSAGE.unpack_from(answer)
    if kind != _ERROR or answered != number:
        return None
    (error,) = struct.unpack_from("=i", answer, _MESSAGE.size)
    return -int(error)


def _link(index: int, flags: int) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


def _ask(what: str, kind: int, flags: int, body: bytes) -> None:
    number = next(_numbers)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(message(kind, flags, number, body))
        error = None
        while error is None:
            error = acknowledged(kernel.recv(65536), number)
    if error:
        raise OSError(error, f"{what}: {os.strerror(error)}")
