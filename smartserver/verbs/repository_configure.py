"""`Repository.configure`: change a repository's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from smartserver.errors import AccessDenied, InvalidName, LimitExceeded, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb
from smartserver.verbs.fields import Small, Word

MAX_SETTINGS = 64
"""Settings of a repository: they travel with each first answer."""

MAX_SETTINGS_BYTES = 16 * 1024
"""Bytes of their names and values."""


class ConfigureRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`settings`: new values, None: none."""

    settings: Annotated[dict[Word, Small | None], msgspec.Meta(max_length=MAX_SETTINGS)]


class ConfigureResult(Result, frozen=True, array_like=True):
    """The values that those settings had; one that was absent is left out."""

    old: dict[str, bytes]


@verb(
    "Repository.configure",
    own_verdict=True,
    errors=(AccessDenied, InvalidName, LimitExceeded, NoSuchRepository),
    of_incomplete=True,
)
def repository_configure(context: Context, request: ConfigureRequest) -> ConfigureResult:
    """Set and remove settings of a repository, such as `HEAD`.

    That needs the permission to force, as moving a branch does: settings decide what every clone begins with.
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
    """Accept settings that take no more than they may, or than those before them did.

    Raises:
        LimitExceeded: they take more.
    """
    size, was = (sum(len(name.encode()) + len(value) for name, value in each.items()) for each in (settings, before))
    if size > max(MAX_SETTINGS_BYTES, was):
        raise LimitExceeded("bytes of a repository's settings", size, MAX_SETTINGS_BYTES)
