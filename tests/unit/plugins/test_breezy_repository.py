"""plugins.breezy.sending, plugins.breezy.repository: what a write group and a fetch send, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from breezy.bzr.vf_search import EmptySearchResult, PendingAncestryResult, SearchResult
from smartserver.plugins.breezy.sending import WriteGroup

from smartserver.plugins.breezy import repository, sending
from smartserver.plugins.breezy.repository import HpssRepository
from smartserver.vcs.bzr.compat import format_2a  # noqa: F401  # It initializes Breezy.
from smartserver.vcs.bzr.repository import BrzRepository


@pytest.fixture
def there() -> Any:
    """A repository on a server that nothing asks."""
    place = SimpleNamespace(base="hpss://localhost/p/")
    return HpssRepository(SimpleNamespace(root_transport=place), SimpleNamespace(is_known=False))  # type: ignore[arg-type]


def test_a_write_group_that_cannot_end_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        in_group = locked = False

        def lock_write(self) -> None:
            self.locked = True

        def start_write_group(self) -> None:
            self.in_group = True

        def commit_write_group(self) -> None:
            raise OSError("the disk is full")

        def abort_write_group(self, suppress_errors: bool) -> None:
            self.in_group = False

        def unlock(self) -> None:
            assert not self.in_group, "Must end write group before releasing write lock"
            self.locked = False

    memory: Any = Memory()
    monkeypatch.setattr(sending, "in_memory", lambda below: memory)
    monkeypatch.setattr(sending, "instead_of_breezys_look", nullcontext)
    group = WriteGroup(memory)
    with pytest.raises(OSError, match="the disk is full"):
        group.send(None)  # type: ignore[arg-type]
    assert (memory.in_group, memory.locked) == (False, False)


def test_signatures_are_sent_after_the_revisions_they_sign(there: Any) -> None:
    sent: list[str] = []
    there._signatures = SimpleNamespace(drop=lambda: None, send=lambda: sent.append("signatures"))
    assert not there.is_in_write_group()
    there.start_write_group()
    assert there.is_in_write_group()
    there._group = SimpleNamespace(send=lambda remote: sent.append("revisions"), repository=None)
    there.commit_write_group()
    assert sent == ["revisions", "signatures"]
    assert not there.is_in_write_group()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (PendingAncestryResult([b"r2"], None), [b"r2"]),
        (SearchResult([b"r2"], [], 1, [b"r2"]), [b"r2"]),
        (EmptySearchResult(), []),
    ],
)
def test_a_fetch_sends_no_more_than_its_search_names(
    there: Any, spec: object, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def send(remote: object, repository: object, revisions: Sequence[bytes]) -> None:
        sent.extend(revisions)

    monkeypatch.setattr(repository, "send_beside", send)
    monkeypatch.setattr(BrzRepository, "heads", lambda repository: [b"r2", b"private"])
    there.fetch(SimpleNamespace(user_url="file:///here", lock_read=nullcontext), fetch_spec=spec)
    assert sent == expected
