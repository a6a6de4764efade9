"""The knowledge of a client about a change it asked for, from the end of each sending.

Both sides send before they listen: whatever comes in place of an answer, be it the greeting of a login shell, does not
say that nobody read the request. Of a request that changes nothing there is nothing to know.

A refusal says nothing of an earlier sending that got no answer. That one may still be in progress: in a process that
was stopped, or on a server whose link was lost. It is then carried out when it goes on, if its conditions hold by then.
So after it only success is certain: the repository's log then has the request, and carries it out once.
"""

from __future__ import annotations

import dataclasses
import enum

from smartserver.client.medium import CannotConnect
from smartserver.errors import OutcomeUnknown
from smartserver.wire.errors import NotHpss


class Certainty(enum.Enum):
    """The knowledge about a change after the sendings so far."""

    UNMADE = "no sending can have been carried out"
    HARDLY = "all of it went to somebody who does not speak hpss, as far as one can hear, or to nobody"
    PERHAPS = "a sending may have been carried out"

    def after(self, error: Exception, *, perhaps_read: bool) -> Certainty:
        """The knowledge after one more sending, which got no answer.

        `perhaps_read`: it was sent whole, and nobody has shown that he reads nothing.
        """
        if not perhaps_read:
            return self
        if isinstance(error, (NotHpss, CannotConnect)):
            return Certainty.HARDLY if self is Certainty.UNMADE else self
        return Certainty.PERHAPS

    @property
    def doubtful(self) -> bool:
        """True if a sending may have been carried out."""
        return self is not Certainty.UNMADE

    def doubt(self, why: str) -> OutcomeUnknown:
        """The error for a change when no more is to be learnt."""
        return NoServer(why) if self is Certainty.HARDLY else OutcomeUnknown(why)


@dataclasses.dataclass(eq=False)
class NoServer(OutcomeUnknown):
    """Nobody who speaks hpss answers. Most likely the address is wrong; but there may be a server behind it."""

    def __str__(self) -> str:
        return f"{self.why}; if an hpss server got the request all the same, it is unknown whether the change was made"
