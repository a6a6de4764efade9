"""Connections that outlive a command: one that the user's agent holds is taken, and given back when it is at rest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from smartserver.agent.address import is_wanted
from smartserver.client.media.descriptors import DescriptorMedium
from smartserver.client.places import is_holdable, served_by

if TYPE_CHECKING:
    from smartserver.client.medium import Medium
    from smartserver.client.places import Place

SSH = "hpss+ssh://"
"""The beginning of a URL whose server a program logs in at."""

OF_LOGIN = ("SSH_AUTH_SOCK", "HOME", "KRB5CCNAME", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that decide as whom ssh logs in, and which certificates TLS trusts, besides what a command says."""


class Resumed(NamedTuple):
    """A connection that others used before: the id of their last request, and the seconds in which a server that is
    there gives a sign of life."""

    medium: Medium
    last_id: int
    patience: float


@runtime_checkable
class Lendable(Protocol):
    """A medium that another process can go on with."""

    def lend(self) -> Sequence[int]:
        """Its descriptors: the one to read from, the one to write to where that is another, and what else is to be
        open as long. From then on `close` closes them and ends nothing."""


class Holder(Protocol):
    """A keeper of connections between commands."""

    def take(self) -> Resumed | None:
        """One that is at rest; None where there is none."""

    def give(self, medium: Medium, last_id: int, patience: float) -> bool:
        """Keep one that is at rest; whether it is kept. It is closed here in either case."""


class AgentHolder:
    """The user's agent, for the connections to one server."""

    def __init__(self, where: str, login: Sequence[str], environment: Mapping[str, str]) -> None:
        """`where`: the URL of all that the server serves. `login`: as of `places.login_of`; none over TCP. A connection
        is lent only for the same."""
        self._where = where
        self._prepared: Resumed | None = None
        self._environment = environment
        facts = [where, *login, *[environment.get(name, "") for name in OF_LOGIN if login]]
        if where.startswith(SSH) and login:
            import shutil  # No other connection needs it.

            facts.append(shutil.which(login[0], path=environment.get("PATH")) or "")
        self._key = hashlib.blake2b("\0".join(facts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def prepare(self) -> bool:
        """Take one before it is asked for; whether there is one."""
        self._prepared = self.take()
        return self._prepared is not None

    def take(self) -> Resumed | None:
        """One that the agent holds."""
        from smartserver.agent.lending import borrow

        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            return prepared
        found = borrow(self._key, self._environment)
        return None if found is None else Resumed(DescriptorMedium(found.descriptors), found.last_id, found.patience)

    def give(self, medium: Medium, last_id: int, patience: float) -> bool:
        """Have the agent hold one."""
        from smartserver.agent.lending import give
        from smartserver.agent.messages import Give

        if not isinstance(medium, Lendable):
            return False
        return give(Give(self._key, self._where, last_id, patience), medium.lend(), self._environment)


def holder_for(place: Place, login: Sequence[str], environment: Mapping[str, str]) -> AgentHolder | None:
    """The keeper of connections to a place; None where none may be held, or the user wants no agent."""
    if not is_holdable(place) or not is_wanted(environment):
        return None
    return AgentHolder(served_by(place), login, environment)
