"""Every transport and every decorator against the promises of `transports.base`."""

from __future__ import annotations

from pathlib import Path

import pytest

from transports.base import Transport
from transports.conformance import ReadSuite, TransportSuite
from transports.decorators.counted import CountedTransport
from transports.decorators.faulty import FaultyTransport
from transports.decorators.passing import PassingTransport
from transports.decorators.readonly import ReadonlyTransport
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


class TestCounted(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return CountedTransport(MemoryTransport())


class TestCountedLocal(TransportSuite):
    @pytest.fixture
    def transport(self, tmp_path: Path) -> Transport:
        return CountedTransport(LocalTransport(tmp_path))


class TestFaultyThatDoesNotFail(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return FaultyTransport(MemoryTransport())


class TestDecoratorsInDecorators(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return CountedTransport(FaultyTransport(CountedTransport(MemoryTransport())))


class TestReadonly(ReadSuite):
    @pytest.fixture
    def storage(self) -> Transport:
        return MemoryTransport()

    @pytest.fixture
    def transport(self, storage: Transport) -> Transport:
        return ReadonlyTransport(storage)


class TestReadonlyLocal(ReadSuite):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Transport:
        return LocalTransport(tmp_path)

    @pytest.fixture
    def transport(self, storage: Transport) -> Transport:
        return ReadonlyTransport(storage)
