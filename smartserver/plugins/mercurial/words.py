"""Converts our errors to Mercurial's own. Mercurial's commands catch these, print the message and exit with Mercurial's
status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mercurial import error
from mercurial.i18n import _

from smartserver.client.medium import CannotConnect, MediumError
from smartserver.client.places import damage_in_words, path_in_words
from smartserver.client.plain import plain
from smartserver.client.request import NotOurProtocol
from smartserver.errors import CorruptFile, CorruptRecord, NoSuchPart, NoSuchRepository, WrongVcs
from smartserver.records.varint import Malformed
from smartserver.vcs.base import VcsError
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.places import Place


def refusal(said: str) -> Any:
    """Return an error that ends the command."""
    return error.Abort(plain(said).encode())


@contextmanager
def in_mercurials_words(location: Place, url: bytes) -> Iterator[None]:
    """Raise Mercurial's error for each of ours."""
    try:
        yield
    except CannotConnect as cause:
        raise refusal(str(cause)) from cause
    except (MediumError, ProtocolError, NotOurProtocol, Malformed) as cause:
        raise refusal(f"{location.where}: {cause}") from cause
    except NoSuchRepository as cause:
        raise error.RepoError(_(b"repository %s not found") % url) from cause
    except WrongVcs as cause:
        message = f"{path_in_words(location) or location.where} is a repository of {cause.vcs}, not of Mercurial"
        raise error.RepoError(plain(message).encode()) from cause
    except CorruptFile as cause:
        raise refusal(damage_in_words(location, cause)) from cause
    except CorruptRecord as cause:
        raise refusal(f"{cause} (`hg verify` shows whether it is damaged here)") from cause
    except NoSuchPart as cause:
        raise error.RepoLookupError(plain(str(cause)).encode()) from cause
    except (CodedError, VcsError) as cause:
        raise refusal(str(cause)) from cause
