"""A command's side of the exchange with the keeper: the command borrows a connection, and gives one back."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from smartserver.agent.address import KEEPER, NoAgent
from smartserver.agent.messages import Borrow, Give, Message, T, decode_lent, receive, send
from smartserver.agent.peer import TIME_TO_ANSWER, connect
from smartserver.agent.start import start


class Borrowed(NamedTuple):
    """A borrowed connection: its descriptors, the id of its last request, and the seconds of silence after which its
    server is taken for disconnected."""

    descriptors: Sequence[int]
    last_id: int
    patience: float


def borrow(key: str, environment: Mapping[str, str]) -> Borrowed | None:
    """Borrow a connection that was stored under a key. Return None if no agent has one."""
    try:
        lent, descriptors = ask(Borrow(key), decode_lent, environment)
    except NoAgent:
        return None
    return None if lent is None else Borrowed(descriptors, lent.last_id, lent.patience)


def give(given: Give, descriptors: Sequence[int], environment: Mapping[str, str]) -> bool:
    """Pass a connection to the agent, and start the agent if none is running. Return True if the packet was sent. The
    agent may read it later."""
    try:
        try:
            keeper = _keeper(environment)
        except NoAgent:
            start(environment)
            keeper = _keeper(environment)
        with keeper:
            send(keeper, given, descriptors)
    except (NoAgent, OSError):
        return False
    return True


def ask(
    message: Message, decode: Callable[[bytes], T], environment: Mapping[str, str], *, foreign: bool = False
) -> tuple[T, list[int]]:
    """Send a message to the keeper, and wait for its answer. `foreign`: as for `connect`."""
    with _keeper(environment, waits=True, foreign=foreign) as keeper:
        try:
            send(keeper, message)
        except OSError as error:
            raise NoAgent(error.strerror or str(error)) from None
        return receive(keeper, decode)


def _keeper(environment: Mapping[str, str], *, waits: bool = False, foreign: bool = False) -> socket.socket:
    keeper = socket.socket(fileno=connect(KEEPER, environment, waits=waits, foreign=foreign).detach())
    keeper.settimeout(TIME_TO_ANSWER)
    return keeper
