"""The two ends of an emulated link: an interface in a namespace, and a descriptor that its packets come out of.

Two kinds. `tun`: one interface a namespace and no Ethernet; needs the node /dev/net/tun. `veth`: a pair of interfaces,
the near one read through a packet socket; needs no node, so an ordinary user's namespaces have it anywhere. Where
`trains` are allowed a packet may be a train of segments, up to 64 KB, each of them no longer than the link allows: ten
times the throughput, but what a link does to packets it then does to trains.

Before each packet comes the header of virtio (linux/virtio_net.h), which says how long a train's segments are, and that
a checksum is yet to be made; the far kernel needs neither it nor the checksum, so both are passed on.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass

from netem import netlink
from netem.namespaces import Namespace

INTERFACE = "emu0"
"""The interface's name in both namespaces."""
MTU = 1500
"""Bytes of an IP packet: TCP segments of 1,448 bytes, as on most of the Internet."""
QUEUE = 50_000
"""Packets that may wait in the kernel for the emulator; a link drops packets where it says so and nowhere else."""
SOCKET_BUFFER = 64 << 20
"""Bytes of a packet socket's buffers, for the same reason."""

VIRTIO_BYTES = 10

TUN = "/dev/net/tun"
_SET_INTERFACE, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_IS_TUN, _NO_INFORMATION, _VIRTIO_HEADER = 0x0001, 0x1000, 0x4000
_CHECKSUM, _SEGMENTS = 1, 2 | 4
_PACKET_LEVEL, _PACKET_VIRTIO_HEADER, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_IPV4 = 0x0800
_FORCE_RECEIVE_BUFFER, _FORCE_SEND_BUFFER = 33, 32
_ETHERNET_BYTES = 14


@dataclass(frozen=True, slots=True)
class Port:
    """Where packets that one side sends come out, and those for it go in, whole packets at a time."""

    descriptor: int
    header: int
    """Bytes before the IP packet: offload's and Ethernet's. They are passed on as they are."""


def open_tun(namespace: Namespace) -> Port:
    """A TUN interface in a namespace.

    Raises:
        OSError: no such node, or not allowed.
    """
    import fcntl

    with namespace.entered():
        descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = _IS_TUN | _NO_INFORMATION | _VIRTIO_HEADER
            fcntl.ioctl(descriptor, _SET_INTERFACE, struct.pack("16sH22x", INTERFACE.encode(), flags))
            fcntl.ioctl(descriptor, _SET_OFFLOAD, _CHECKSUM | _SEGMENTS)
        except BaseException:
            os.close(descriptor)
            raise
    return Port(descriptor, VIRTIO_BYTES)


def open_veth(namespace: Namespace, hub: Namespace, number: int) -> Port:
    """A veth pair from a namespace into `hub`, where the emulator reads; `number` tells the pairs of a hub apart.

    Raises:
        OSError: not allowed, or no such interfaces.
    """
    name = f"hub{number}"
    with hub.entered():
        netlink.add_pair(name, INTERFACE, namespace.fileno(), peer_hardware=_hardware(number))
        netlink.set_up(name, mtu=MTU, queue=QUEUE)
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            packets.setsockopt(_PACKET_LEVEL, _PACKET_VIRTIO_HEADER, 1)
            packets.setsockopt(_PACKET_LEVEL, _PACKET_IGNORE_OUTGOING, 1)
            for option, forced in ((socket.SO_RCVBUF, _FORCE_RECEIVE_BUFFER), (socket.SO_SNDBUF, _FORCE_SEND_BUFFER)):
                try:
                    packets.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER)
                except OSError as error:
                    if error.errno != errno.EPERM:
                        raise
                    packets.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
            packets.bind((name, _IPV4))
            packets.setblocking(False)
            return Port(packets.detach(), VIRTIO_BYTES + _ETHERNET_BYTES)
        finally:
            packets.close()


def set_up(
    namespace: Namespace, number: int, addresses: tuple[str, str], *, ethernet: bool, trains: bool, congestion: str
) -> None:
    """Address the interface of side `number` (0 or 1) of a link, and lead everything for the other side through it.

    Raises:
        OSError: the kernel refuses, for example that congestion control.
    """
    own, other = addresses[number], addresses[1 - number]
    with namespace.entered():
        netlink.set_up("lo")
        # IPv6 sends packets of its own accord; a count should hold what the programs did.
        _write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")
        netlink.set_up(INTERFACE, mtu=MTU, queue=QUEUE, segments=None if trains else 1)
        netlink.add_address(INTERFACE, own, 30)
        if ethernet:
            netlink.add_neighbour(INTERFACE, other, _hardware(1 - number))
        netlink.set_route(INTERFACE, other, congestion=congestion)


def set_kernel(namespace: Namespace, name: str, value: str) -> None:
    """Set one of a namespace's own settings, as `sysctl -w net.ipv4.tcp_fastopen=3` does.

    Raises:
        OSError: there is none, or it does not take the value.
    """
    with namespace.entered():
        path = f"/proc/sys/{name.replace('.', '/')}"
        with open(path, "w", encoding="ascii") as file:
            file.write(value)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except FileNotFoundError:
        pass  # a kernel without IPv6


def _hardware(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))
