"""The two ends of an emulated link: an interface in a namespace, and a descriptor that its packets come out of.

Each side has a pair of interfaces (veth); the emulator reads the local one through a packet socket. That needs no node
of a device, so an ordinary user's namespaces have it anywhere. A packet may be a train of segments, up to 64 KB, each
of them no longer than the link allows: see `trains`.

Before each packet comes the header of virtio (linux/virtio_net.h), which says how long a train's segments are, and that
a checksum is yet to be made; the remote kernel needs neither it nor the checksum, so both are passed on.
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
"""Bytes of an IP packet: TCP segments of 1,448 bytes, as on most of the Internet."""
QUEUE = 50_000
"""Packets that may wait in the kernel for the emulator; a link drops packets where it says so and nowhere else."""
SOCKET_BUFFER = 64 << 20
"""Bytes of a packet socket's buffers, for the same reason."""

_PACKET_LEVEL, _PACKET_VIRTIO_HEADER, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_IPV4 = 0x0800
_FORCE_RECEIVE_BUFFER, _FORCE_SEND_BUFFER = 33, 32
_ETHERNET_BYTES = 14

_SETTINGS = {
    # IPv6 sends packets of its own accord; a count should hold what the programs did.
    "net.ipv6.conf.all.disable_ipv6": "1",
    # Else a connection starts with what the kernel learned of an earlier one, and is not fresh.
    "net.ipv4.tcp_no_metrics_save": "1",
}


@dataclass(frozen=True, slots=True)
class Port:
    """An end at which packets that one side sends come out, and those for it go in, whole packets at a time."""

    descriptor: int
    header: int
    """Bytes before the IP packet: offload's and Ethernet's. They are passed on as they are."""


def join(sides: tuple[Namespace, Namespace], *, congestion: str) -> tuple[Port, Port]:
    """Give both sides an interface, addresses and routes to each other, and return what is to be joined.

    What fails half-way leaves no descriptor open; the interfaces it made go with the namespaces.
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
        hub.close()  # the sockets keep it
    return ports[0], ports[1]


def check_setting(name: str) -> None:
    """Check that a setting is a namespace's own."""
    first, *rest = name.split(".")
    if first != "net" or not rest or not all(part.replace("-", "_").isidentifier() for part in rest):
        raise ValueError(f"{name!r} is no setting of the network: its name begins with net.")


def set_kernel(namespace: Namespace, name: str, value: str) -> None:
    """Set one of a namespace's own settings, as `sysctl -w net.ipv4.tcp_fastopen=3` does."""
    check_setting(name)
    with namespace.entered(), open(f"/proc/sys/{name.replace('.', '/')}", "w", encoding="ascii") as file:
        file.write(value)


def _open_port(namespace: Namespace, hub: Namespace, number: int) -> Port:
    """A pair from a namespace into `hub`, where the emulator reads; `number` tells the pairs of a hub apart."""
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
    """Address the interface of side `number`, and lead everything for the other side through it."""
    own, other = ADDRESSES[number], ADDRESSES[1 - number]
    for name, value in _SETTINGS.items():
        with contextlib.suppress(FileNotFoundError):  # an older kernel, or one without IPv6
            set_kernel(namespace, name, value)
    with namespace.entered():
        netlink.set_up("lo")
        netlink.set_up(INTERFACE, mtu=MTU, queue=QUEUE)
        netlink.add_address(INTERFACE, own, 30)
        netlink.add_neighbour(INTERFACE, other, _hardware(1 - number))
        # Linux's own default, said so that no system's differs.
        netlink.set_route(INTERFACE, other, congestion=congestion, initial_window=INITIAL_WINDOW)


def _hardware(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))
