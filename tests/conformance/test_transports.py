"""Every transport and every decorator against the promises of `transports.base`."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_transport import FaultyTransport

from transports.base import Transport
from transports.conformance import TransportSuite
from transports.decorators.counted import CountedTransport
from transports.decorators.passing import PassingTransport
from transports.local import LocalTransport
from transports.memory import MemoryTransport


class TestLocal(TransportSuite):
    @pytest.fixture
    def transport(self, tmp_path: Path) -> Transport:
        return LocalTransport(tmp_path)


class TestMemory(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return MemoryTransport()


class TestPassing(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return PassingTransport(MemoryTransport())


class TestDecoratorsInDecorators(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return CountedTransport(FaultyTransport(CountedTransport(MemoryTransport())))
