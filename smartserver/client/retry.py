"""When a request is sent again. A repeat is safe: the request's id tells the server that it is one.

Only of file-level changes (VFS) no log can tell: they are not sent again once they may have been read.
"""

from __future__ import annotations

from smartserver.client.medium import ConnectionLost, MediumError
from smartserver.wire.errors import RemoteProtocolError

PAUSES = (0.2, 1.0)
"""Seconds before the second and third sending. There is no fourth, but for one at once where the first went to a held
connection. A restarted server listens again within a second."""


def may_help(error: Exception, *, lost: bool, doubtful: bool, repeatable: bool = True) -> bool:
    """True if it helps to send again after a sending that got no answer.

    `lost`: an earlier one got none either. `doubtful`: one may have been carried out. `repeatable`: a server that got
    it twice would know.
    """
    if doubtful and not repeatable:
        return False
    match error:
        case ConnectionLost():
            return True
        case MediumError():
            return lost  # Who was there a moment ago may come back.
        case RemoteProtocolError():
            return doubtful  # The log of the repository may still tell.
        case _:
            return False
