"""`Repository.configure`: change a repository's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from smartserver.errors import AccessDenied, InvalidName, LimitExceeded, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb
from smartserver.verbs.fields import Small, Word

MAX_SETTINGS = 64
"""The most settings of a repository: the first answer to each client has all of them."""

MAX_SETTINGS_BYTES = 16 * 1024
"""The most bytes of the names and values of all settings."""


class ConfigureRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`settings`: the new values by name; nil removes a setting."""

    settings: Annotated[dict[Word, Small | None], msgspec.Meta(max_length=MAX_SETTINGS)]


class ConfigureResult(Result, frozen=True, array_like=True):
    """The previous values of the changed settings, without those that were absent."""

    old: dict[str, bytes]


@verb(
    "Repository.configure",
    own_verdict=True,
    errors=(AccessDenied, InvalidName, LimitExceeded, NoSuchRepository),
    of_incomplete=True,
)
def repository_configure(context: Context, request: ConfigureRequest) -> ConfigureResult:
    """Set and remove settings of a repository, such as `HEAD`.

    The user needs the permission to administer, because settings decide the start of every clone.
    """
    transaction = context.transaction
    present = dict(transaction.settings)
    context.require(Permission.ADMIN)
    left = {name: value for name, value in {**present, **request.settings}.items() if value is not None}
    if len(left) > max(MAX_SETTINGS, len(present)):
        raise LimitExceeded("settings of a repository", len(left), MAX_SETTINGS)
    check_size(left, present)
    for name, value in request.settings.items():
        transaction.set_setting(name, value)
    return ConfigureResult({name: present[name] for name in request.settings if name in present})


def check_size(settings: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    """Check that settings take no more bytes than the limit, or than the previous settings.

    Raises:
        LimitExceeded: the settings take more.
    """
    size, was = (sum(len(name.encode()) + len(value) for name, value in each.items()) for each in (settings, before))
    if size > max(MAX_SETTINGS_BYTES, was):
        raise LimitExceeded("bytes of a repository's settings", size, MAX_SETTINGS_BYTES)
