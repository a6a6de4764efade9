"""What a server advises, on the terminal of Breezy's user: one line a day of each kind, and always in `brz info`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from breezy import trace

from smartserver.client.places import served_by
from smartserver.plugins.breezy.commands import running

if TYPE_CHECKING:
    from smartserver.client.advice import Advice
    from smartserver.plugins.breezy.remote import Remote


def listen(remote: Remote) -> None:
    """Show what the answers to a remote's requests advise."""
    repository = remote.repository
    repository.asks_for_advice = running().shows_advice

    def advised(found: Sequence[Advice]) -> None:
        from smartserver.client.advice import lines  # There is nearly never any.

        if trace.is_quiet():
            return
        known = repository.knowledge
        url = served_by(remote.location) + (known.at or "")
        for line in lines(found, url, "brz pack", known.path, always=running().shows_advice):
            trace.note("%s", line)

    repository.advised = advised
