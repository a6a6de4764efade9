"""Networks of packets; where there can be none, a test is skipped with the reason (and REQUIRE_ALL=1 fails it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from netem.link import Link
from netem.packets.errors import Unavailable
from netem.packets.network import Packets

Start = Callable[..., Packets]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(link)` starts a network; it ends with the test. The kind that works everywhere, unless told otherwise."""
    made: list[Packets] = []

    def begin(link: Link, **options: Any) -> Packets:
        network = Packets(link, **{"backend": "veth", **options})
        try:
            network.start()
        except Unavailable as error:
            pytest.skip(str(error))
        made.append(network)
        return network

    yield begin
    for network in made:
        network.close()
