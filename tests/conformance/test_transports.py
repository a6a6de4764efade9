"""Every transport and every decorator against the promises of `transports.base`."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import NoReturn

import pytest
from faulty_transport import FaultyTransport
from memory_transport import MemoryTransport
from transport_publishing import PublishSuite
from transport_suite import TransportSuite

from transports.base import Transport
from transports.decorators.cached import CachedTransport, CacheFolder
from transports.decorators.counted import CountedTransport
from transports.local import LocalTransport


class TestLocal(TransportSuite):
    @pytest.fixture
    def transport(self, tmp_path: Path) -> Transport:
        return LocalTransport(tmp_path)


class TestLocalWithoutLinks(PublishSuite):
    @pytest.fixture
    def transport(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Transport:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        return LocalTransport(tmp_path)


class TestMemory(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return MemoryTransport()


class TestMemoryWithoutLinks(PublishSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return MemoryTransport(links=False)


class TestCached(TransportSuite):
    @pytest.fixture
    def transport(self, tmp_path: Path) -> Transport:
        return CachedTransport(MemoryTransport(), CacheFolder(tmp_path, 1 << 20), re.compile(".*never changes"))


class TestDecoratorsInDecorators(TransportSuite):
    @pytest.fixture
    def transport(self) -> Transport:
        return CountedTransport(FaultyTransport(CountedTransport(MemoryTransport())))
