"""The client's knowledge of whether its change was made, derived from how each sending ended.

Both sides send before they listen. So other bytes in place of an answer, such as the greeting of a login shell, do not
show that nobody read the request. A request that changes nothing needs none of this.

A refusal says nothing of an earlier sending that got no answer. That sending may still be in progress, in a stopped
process or on a server whose link was lost. The server may then carry it out later, if its conditions hold by then. So
after a sending that was complete and got no answer, only success is certain: the repository's log then has the request,
which is carried out once.
"""

from __future__ import annotations

import dataclasses
import enum

from smartserver.client.medium import CannotConnect
from smartserver.errors import OutcomeUnknown
from smartserver.wire.errors import NotHpss


class Certainty(enum.Enum):
    """The client's knowledge about a change after the sendings so far."""

    UNMADE = "no sending can have been carried out"
    HARDLY = "all of it went to somebody who does not speak hpss, as far as one can hear, or to nobody"
    PERHAPS = "a sending may have been carried out"

    def after(self, error: Exception, *, perhaps_read: bool) -> Certainty:
        """Return the knowledge after one more sending, which got no answer.

        `perhaps_read`: True if the request was sent completely, and the server did not show that it reads no requests.
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
        """Return the error for a change whose outcome cannot be learned."""
        return NoServer(why) if self is Certainty.HARDLY else OutcomeUnknown(why)


@dataclasses.dataclass(eq=False)
class NoServer(OutcomeUnknown):
    """No hpss server answers. Most likely the address is wrong, but an hpss server may have got the request."""

    def __str__(self) -> str:
        return f"{self.why}; if an hpss server got the request all the same, it is unknown whether the change was made"
