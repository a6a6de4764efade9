"""Every ban there is, by the names they are asked for with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smartserver.errors import Banned
from smartserver.trace.bans.extra_connection import ExtraConnection
from smartserver.trace.bans.model import Ban
from smartserver.trace.bans.needless_read import Duplicate, ReadBack, Reopen
from smartserver.trace.bans.noter import Note, Noter
from smartserver.trace.bans.per_item import PerItem
from smartserver.trace.bans.resend import Resend
from smartserver.trace.bans.rule import BadRule, Rule, nearest
from smartserver.trace.bans.watcher import Watcher

BEHAVIOURS: dict[str, type[Ban]] = {
    ban.name: ban for ban in (ReadBack, Duplicate, PerItem, ExtraConnection, Resend, Reopen)
}
"""A trace notes the first of those that apply to a request: those that cost a round trip come before those that cost
bytes."""

SILLY = "silly"
"""All behaviours."""


def watcher(rules: Sequence[str], found: Callable[[Banned], None] = lambda banned: None) -> Watcher:
    """An observer of one client that bans what rules name; `found` as for `Watcher`.

    Raises:
        BadRule: as `bans`.
    """
    return Watcher(bans(rules), found)


def noter(found: Callable[[Note], None]) -> Noter:
    """An observer of one client that notes all behaviours; `found` as for `Noter`."""
    return Noter(bans([SILLY]), found)


def bans(rules: Sequence[str]) -> list[Ban]:
    """The bans of these rules, new ones for each client.

    Raises:
        BadRule: one is no rule, or matches no verb; the message has those that are near it.
    """
    found: list[Ban] = []
    for text in dict.fromkeys(rules):
        if text == SILLY:
            found += [each() for each in BEHAVIOURS.values()]
        elif text in BEHAVIOURS:
            found.append(BEHAVIOURS[text]())
        elif ":" in text:
            found.append(Rule(text))
        else:
            raise BadRule(f"no such rule: {text!r}{nearest(text, [SILLY, *BEHAVIOURS])}")
    return found


def of_calls(rules: Sequence[str]) -> list[Rule]:
    """The same for a server, which bans by name only.

    Raises:
        BadRule: as `bans`, or it is a behaviour.
    """
    for text in rules:
        if text == SILLY or text in BEHAVIOURS:
            what = "are behaviours" if text == SILLY else "is a behaviour"
            forms = f"a server bans calls by name ({Rule.name})"
            raise BadRule(f"{text!r} {what} of a client, which bans by -Dhpss-ban={text}; {forms}")
    return [each for each in bans(rules) if isinstance(each, Rule)]
