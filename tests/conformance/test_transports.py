"""Every transport and every decorator against the promises of `transports.base`."""

from __future__ import annotations

from pathlib import Path

import pytest

from transports.base import Transport
from transports.conformance import TransportSuite
from transports.decorators.ban import BanTransport
from transports.decorators.chroot import ChrootTransport
from transports.decorators.counted import CountedTransport
from transports.decorators.faulty import FaultyTransport
from transports.decorators.passing import PassingTransport
from transports.decorators.readonly import ReadonlyTransport
from transports.decorators.slow import SlowTransport
from transports.local import LocalTransport
from transports.memory import MemoryTransport
from transports.read_conformance import ReadSuite


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


class TestChroot(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        storage = MemoryTransport()
        storage.make_directory("served")
        storage.make_directory("served/tree")
        return ChrootTransport(storage.child("served"), "tree")


class TestChrootLocal(TransportSuite):
    @pytest.fixture
    def transport(self, tmp_path: Path) -> Transport:
        (tmp_path / "tree").mkdir()
        return ChrootTransport(LocalTransport(tmp_path), "tree")


class TestSlow(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return SlowTransport(MemoryTransport(), 1.0, lambda _: None)


class TestBanOfOther(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return BanTransport(MemoryTransport(), [("*", "elsewhere/*")])


class TestDecoratorsInDecorators(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        storage = MemoryTransport()
        storage.make_directory("tree")
        slow = SlowTransport(FaultyTransport(CountedTransport(storage)), 1.0, lambda _: None)
        return CountedTransport(BanTransport(ChrootTransport(slow, "tree"), [("lock", "elsewhere")]))


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
