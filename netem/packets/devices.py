"""The two ends of an emulated link: each is an interface in a namespace, and a descriptor for its packets.

Each side has a pair of interfaces (veth). The emulator reads the local one through a packet socket. That needs no
device node, so it works in an ordinary user's namespaces too. A packet may be a train of segments, up to 64 KB, each of
them no longer than the link allows: see `trains`.

Each packet is preceded by the header of virtio (linux/virtio_net.h). It has the length of a train's segments, and says
that a checksum is missing. The remote kernel accepts both, so header and packet are passed on unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass

from netem.packets import netlink
from netem.packets.namespaces import Namespace
from netem.packets.trains import VIRTIO_BYTES
from netem.tcp_model import INITIAL_WINDOW

ADDRESSES = ("10.201.0.1", "10.201.0.2")
"""The addresses of the client's side and the server's, inside their namespaces."""
INTERFACE = "emu0"
"""The interface's name in both namespaces."""
MTU = 1500
"""The most bytes of an IP packet, as on most of the Internet. A TCP segment then has up to 1,448 bytes."""
QUEUE = 50_000
"""The most packets that wait in the kernel for the emulator: so many that only the emulated link drops packets."""
SOCKET_BUFFER = 64 << 20
"""Bytes of each buffer of a packet socket. The buffer is so large that only the emulated link drops packets."""

_PACKET_LEVEL, _PACKET_VIRTIO_HEADER, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_IPV4 = 0x0800
_FORCE_RECEIVE_BUFFER, _FORCE_SEND_BUFFER = 33, 32
_ETHERNET_BYTES = 14

_SETTINGS = {
    # IPv6 sends packets by itself, but only the packets of the programs should be counted.
    "net.ipv6.conf.all.disable_ipv6": "1",
    # Otherwise a connection starts with the metrics of an earlier one, and is not fresh.
    "net.ipv4.tcp_no_metrics_save": "1",
}


@dataclass(frozen=True, slots=True)
class Port:
    """The emulator's end of one side. A read returns a packet sent by that side, and a write delivers a packet to
    it."""

    descriptor: int
    header: int
    """Bytes of the headers of virtio and Ethernet before the IP packet, which are passed on unchanged."""


def join(sides: tuple[Namespace, Namespace], *, congestion: str) -> tuple[Port, Port]:
    """Give both sides an interface, addresses and routes to each other, and return their ports.

    After an error no descriptor remains open. Interfaces are removed with their namespaces.
    """
    hub = Namespace()
    ports: list[Port] = []
    try:
        for number, side in enumerate(sides):
            ports.append(_open_port(side, hub, number))
        for number, side in enumerate(sides):
            _set_up(side, number, congestion=congestion)
    except BaseException:
        for port in ports:
            os.close(port.descriptor)
        raise
    finally:
        hub.close()  # the sockets keep the namespace
    return ports[0], ports[1]


def check_setting(name: str) -> None:
    """Raise `ValueError` if a kernel setting does not belong to a network namespace."""
    first, *rest = name.split(".")
    if first != "net" or not rest or not all(part.replace("-", "_").isidentifier() for part in rest):
        raise ValueError(f"{name!r} is not a network setting: their names begin with net.")


def set_kernel(namespace: Namespace, name: str, value: str) -> None:
    """Set a kernel setting of a network namespace, as `sysctl -w net.ipv4.tcp_fastopen=3` does."""
    check_setting(name)
    with namespace.entered(), open(f"/proc/sys/{name.replace('.', '/')}", "w", encoding="ascii") as file:
        file.write(value)


def _open_port(namespace: Namespace, hub: Namespace, number: int) -> Port:
    """Make a pair of interfaces between the namespace of side `number` and `hub`, and return the port in `hub`."""
    name = f"hub{number}"
    with hub.entered():
        netlink.add_pair(name, INTERFACE, namespace.fileno(), peer_hardware=_hardware(number))
        netlink.set_up(name, mtu=MTU, queue=QUEUE)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as packets:
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


def _set_up(namespace: Namespace, number: int, *, congestion: str) -> None:
    """Give the interface of side `number` its address, and a route to the other side."""
    own, other = ADDRESSES[number], ADDRESSES[1 - number]
    for name, value in _SETTINGS.items():
        with contextlib.suppress(FileNotFoundError):  # an older kernel, or one without IPv6
            set_kernel(namespace, name, value)
    with namespace.entered():
        netlink.set_up("lo")
        netlink.set_up(INTERFACE, mtu=MTU, queue=QUEUE)
        netlink.add_address(INTERFACE, own, 30)
        netlink.add_neighbour(INTERFACE, other, _hardware(1 - number))
        # Linux's own default, set here because a system may have another one.
        netlink.set_route(INTERFACE, other, congestion=congestion, initial_window=INITIAL_WINDOW)


def _hardware(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))
