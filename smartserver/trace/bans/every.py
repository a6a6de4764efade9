"""All bans by their names, and the observers that apply the bans."""

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
"""The behaviours that a trace records, in order of precedence: only the first one that applies to a request is
recorded. Behaviours that cost a round trip come before those that cost bytes."""

SILLY = "silly"
"""The rule that stands for all behaviours."""


def watcher(rules: Sequence[str], found: Callable[[Banned], None] = lambda banned: None) -> Watcher:
    """Return an observer of one client that applies the bans that `rules` name. `found`: as for `Watcher`."""
    return Watcher(bans(rules), found)


def noter(found: Callable[[Note], None]) -> Noter:
    """Return an observer of one client that records all behaviours. `found`: as for `Noter`."""
    return Noter(bans([SILLY]), found)


def bans(rules: Sequence[str]) -> list[Ban]:
    """Return the bans of these rules, as new objects for each client.

    Raises:
        BadRule: a rule is unknown or matches no verb; the message has similar rules.
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
    """Return the bans of a server, which bans calls by name only.

    Raises:
        BadRule: as `bans`, or a rule is a behaviour.
    """
    for text in rules:
        if text == SILLY or text in BEHAVIOURS:
            what = "are behaviours" if text == SILLY else "is a behaviour"
            forms = f"a server bans calls by name ({Rule.name})"
            raise BadRule(f"{text!r} {what} of a client, which bans by -Dhpss-ban={text}; {forms}")
    return [each for each in bans(rules) if isinstance(each, Rule)]
