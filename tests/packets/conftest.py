"""Networks of packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from needs import require

from netem.link import Link
from netem.packets.network import Packets

Start = Callable[..., Packets]


@pytest.fixture(scope="session", autouse=True)
def _network_namespaces() -> None:
    require("network namespaces")


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(link)` starts a network; it ends with the test."""
    made: list[Packets] = []

    def begin(link: Link, **options: Any) -> Packets:
        network = Packets(link, **options)
        network.start()
        made.append(network)
        return network

    yield begin
    for network in made:
        network.close()
