"""Connections that stay open after a command. A command gets a connection from the user's agent, and gives it back once
the connection is idle."""

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
"""The beginning of the URL of a server that is reached through ssh."""

OF_LOGIN = ("SSH_AUTH_SOCK", "HOME", "KRB5CCNAME", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that decide as which user ssh logs in, and which certificates TLS trusts."""


class Resumed(NamedTuple):
    """A connection that other commands used before. `last_id`: the id of their last request. `patience`: the seconds
    within which a live server must respond."""

    medium: Medium
    last_id: int
    patience: float


@runtime_checkable
class Lendable(Protocol):
    """A medium that another process can continue to use."""

    def lend(self) -> Sequence[int]:
        """Return the descriptors: one to read from, one to write to if it is a different one, and any further ones that
        must stay open. After that, `close` closes the descriptors without ending the connection."""


class Holder(Protocol):
    """A keeper of connections between commands."""

    def take(self) -> Resumed | None:
        """Return an idle connection, or None if the holder has none."""

    def give(self, medium: Medium, last_id: int, patience: float) -> bool:
        """Pass an idle connection to the holder. Return True if the holder keeps it. The caller must close `medium` in
        either case."""


class AgentHolder:
    """The user's agent as the holder of connections to one server."""

    def __init__(self, where: str, login: Sequence[str], environment: Mapping[str, str]) -> None:
        """`where`: the URL of the whole served folder. `login`: the result of `places.login_of`, empty over TCP. A
        connection is lent only for the same `where` and login."""
        self._where = where
        self._prepared: Resumed | None = None
        self._environment = environment
        facts = [where, *login, *[environment.get(name, "") for name in OF_LOGIN if login]]
        if where.startswith(SSH) and login:
            import shutil  # No other connection needs it.

            facts.append(shutil.which(login[0], path=environment.get("PATH")) or "")
        self._key = hashlib.blake2b("\0".join(facts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def prepare(self) -> bool:
        """Request a connection before it is needed. Return True if the agent had one."""
        self._prepared = self.take()
        return self._prepared is not None

    def take(self) -> Resumed | None:
        """Return an idle connection from the agent, or None if it has none."""
        from smartserver.agent.lending import borrow

        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            return prepared
        found = borrow(self._key, self._environment)
        return None if found is None else Resumed(DescriptorMedium(found.descriptors), found.last_id, found.patience)

    def give(self, medium: Medium, last_id: int, patience: float) -> bool:
        """Pass a connection to the agent. Return True if the agent keeps it."""
        from smartserver.agent.lending import give
        from smartserver.agent.messages import Give

        if not isinstance(medium, Lendable):
            return False
        return give(Give(self._key, self._where, last_id, patience), medium.lend(), self._environment)


def holder_for(place: Place, login: Sequence[str], environment: Mapping[str, str]) -> AgentHolder | None:
    """Return the holder of connections to a place. Return None if connections to it must not be held, or the user has
    disabled the agent."""
    if not is_holdable(place) or not is_wanted(environment):
        return None
    return AgentHolder(served_by(place), login, environment)
