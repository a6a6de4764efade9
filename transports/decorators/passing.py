"""`PassingTransport`: passes every call to the inner transport; a decorator overrides the methods that it changes."""

from __future__ import annotations

from typing import Self

from transports import paths
from transports.base import ReadFile, Stat, Transport, WriteFile


class PassingTransport(Transport):
    """A transport with the same files as `inner`.

    A subclass with more state passes it to its children in `wrap`. `prefix`: the path of `inner` below the outermost
    transport, for errors that a decorator itself raises. Steps are performed one by one, so that a subclass sees each
    as a call of its methods. A subclass that handles steps itself passes them on as one list, which needs fewer round
    trips.
    """

    def __init__(self, inner: Transport, *, prefix: str = "") -> None:
        self.inner = inner
        self.prefix = prefix
        self.capabilities = inner.capabilities

    def wrap(self, inner: Transport, prefix: str) -> Self:
        """Return a decorator of the same class around `inner`, a child of this decorator's `inner`."""
        return type(self)(inner, prefix=prefix)

    def full(self, path: str) -> str:
        """Return `path` relative to the outermost transport, as errors show it."""
        return paths.join(self.prefix, path)

    @property
    def connections(self) -> int:
        return self.inner.connections

    def child(self, path: str) -> Self:
        return self.wrap(self.inner.child(path), self.full(path))

    def describe(self, path: str = "") -> str:
        return self.inner.describe(path)

    def real_path(self, path: str = "") -> str:
        return self.inner.real_path(path)

    def get(self, path: str) -> bytes:
        return self.inner.get(path)

    def open_read(self, path: str) -> ReadFile:
        return self.inner.open_read(path)

    def create(self, path: str) -> WriteFile:
        return self.inner.create(path)

    def append(self, path: str) -> WriteFile:
        return self.inner.append(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.inner.link(source, target)

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def make_directory(self, path: str) -> None:
        self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self.inner.remove_directory(path)

    def list_directory(self, path: str) -> list[str]:
        return self.inner.list_directory(path)

    def stat(self, path: str) -> Stat:
        return self.inner.stat(path)

    def sync_directory(self, path: str) -> None:
        self.inner.sync_directory(path)
