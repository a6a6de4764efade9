"""Rtnetlink, as far as a link needs it: make, set up and address interfaces of the calling thread's network namespace.

Formats: rtnetlink(7), linux/rtnetlink.h and linux/if_link.h. Nothing but the standard library and no command is needed.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct

_NEWLINK, _NEWADDR, _NEWROUTE = 16, 20, 24
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 1, 4, 0x100, 0x200, 0x400
_ERROR = 2
_NESTED = 0x8000

_LINK_ADDRESS, _LINK_NAME, _LINK_MTU, _LINK_QUEUE, _LINK_INFO, _LINK_NAMESPACE, _LINK_SEGMENTS = 1, 3, 4, 13, 18, 28, 40
_INFO_KIND, _INFO_PARAMETERS, _VETH_PEER = 1, 2, 1
_UP = 1
_ADDRESS, _LOCAL = 1, 2
_ROUTE_DESTINATION, _ROUTE_INTERFACE, _ROUTE_METRICS = 1, 4, 8
_METRIC_WINDOW, _METRIC_RECEIVE_WINDOW, _METRIC_CONGESTION = 11, 14, 16
_NEIGHBOUR, _NEIGHBOUR_ADDRESS, _NEIGHBOUR_HARDWARE, _PERMANENT = 28, 1, 2, 0x80
_TABLE_MAIN, _PROTOCOL_BOOT, _SCOPE_LINK, _UNICAST = 254, 3, 253, 1

_numbers = itertools.count(1)


def set_up(interface: str, *, mtu: int | None = None, queue: int | None = None, segments: int | None = None) -> None:
    """Bring an interface up; `mtu`: bytes of a packet, `queue`: packets that may wait, `segments`: most of one train.

    Raises:
        OSError: there is none, or it is not allowed.
    """
    attributes = b""
    if mtu is not None:
        attributes += _attribute(_LINK_MTU, struct.pack("=I", mtu))
    if queue is not None:
        attributes += _attribute(_LINK_QUEUE, struct.pack("=I", queue))
    if segments is not None:
        attributes += _attribute(_LINK_SEGMENTS, struct.pack("=I", segments))
    _ask(_NEWLINK, 0, _link(socket.if_nametoindex(interface), _UP) + attributes)


def add_address(interface: str, address: str, prefix: int) -> None:
    """Give an interface an IPv4 address.

    Raises:
        OSError: the kernel refuses.
    """
    packed = socket.inet_aton(address)
    head = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(interface))
    _ask(_NEWADDR, _CREATE | _EXCLUSIVE, head + _attribute(_LOCAL, packed) + _attribute(_ADDRESS, packed))


def set_route(
    interface: str, destination: str, *, congestion: str = "", initial_window: int = 0, receive_window: int = 0
) -> None:
    """Route one IPv4 address through an interface, with the TCP metrics of `ip route ... congctl initcwnd initrwnd`.

    Raises:
        OSError: the kernel refuses; ENOENT: it has no such congestion control.
    """
    metrics = b""
    if congestion:
        metrics += _attribute(_METRIC_CONGESTION, congestion.encode() + b"\0")
    if initial_window:
        metrics += _attribute(_METRIC_WINDOW, struct.pack("=I", initial_window))
    if receive_window:
        metrics += _attribute(_METRIC_RECEIVE_WINDOW, struct.pack("=I", receive_window))
    head = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, _TABLE_MAIN, _PROTOCOL_BOOT, _SCOPE_LINK, _UNICAST, 0)
    body = _attribute(_ROUTE_DESTINATION, socket.inet_aton(destination))
    body += _attribute(_ROUTE_INTERFACE, struct.pack("=I", socket.if_nametoindex(interface)))
    if metrics:
        body += _attribute(_ROUTE_METRICS | _NESTED, metrics)
    _ask(_NEWROUTE, _CREATE | _REPLACE, head + body)


def add_neighbour(interface: str, address: str, hardware: bytes) -> None:
    """Say which Ethernet address an IPv4 address has, so that nobody asks for it over the link.

    Raises:
        OSError: the kernel refuses.
    """
    head = struct.pack("=BxxxIHBB", socket.AF_INET, socket.if_nametoindex(interface), _PERMANENT, 0, 0)
    body = _attribute(_NEIGHBOUR_ADDRESS, socket.inet_aton(address)) + _attribute(_NEIGHBOUR_HARDWARE, hardware)
    _ask(_NEIGHBOUR, _CREATE | _REPLACE, head + body)


def add_pair(name: str, peer: str, namespace: int, *, peer_hardware: bytes) -> None:
    """A pair of joined Ethernet interfaces: `name` here, `peer` in the network namespace of that descriptor.

    Raises:
        OSError: the kernel refuses, or knows no such interfaces.
    """
    other = _link(0, 0) + _attribute(_LINK_NAME, peer.encode() + b"\0") + _attribute(_LINK_ADDRESS, peer_hardware)
    other += _attribute(_LINK_NAMESPACE, struct.pack("=I", namespace))
    kind = _attribute(_INFO_KIND, b"veth\0")
    kind += _attribute(_INFO_PARAMETERS | _NESTED, _attribute(_VETH_PEER | _NESTED, other))
    body = _link(0, 0) + _attribute(_LINK_NAME, name.encode() + b"\0") + _attribute(_LINK_INFO | _NESTED, kind)
    _ask(_NEWLINK, _CREATE | _EXCLUSIVE, body)


def _link(index: int, flags: int) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _ask(kind: int, flags: int, body: bytes) -> None:
    number = next(_numbers)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), kind, flags | _REQUEST | _ACK, number, 0) + body)
        while True:
            answer = kernel.recv(65536)
            _, got, _, answered, _ = struct.unpack_from("=IHHII", answer)
            if got == _ERROR and answered == number:
                (error,) = struct.unpack_from("=i", answer, 16)
                if error:
                    raise OSError(-error, os.strerror(-error))
                return
