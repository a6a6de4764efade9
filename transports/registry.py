"""URL scheme -> what opens it, as a dotted name that is loaded when a URL first needs it."""

from __future__ import annotations

import importlib
from urllib.parse import urlsplit

from transports.base import Transport

OPENERS: dict[str, str] = {
    "file": "transports.local:from_url",
    "memory": "transports.memory:from_url",
    "s3": "transports.s3:from_url",
    "sftp": "transports.sftp:from_url",
    "vfs": "smartserver.client.vfs_transport:from_url",
}
"""Scheme -> `module:function`; the function takes the URL and gives a `Transport`."""


def register(scheme: str, opener: str) -> None:
    """Name what opens the URLs of a scheme, as `module:function`; nothing is loaded yet.

    Raises:
        ValueError: the scheme has another opener, or `opener` is not of that form.
    """
    module, _, function = opener.partition(":")
    if not (module and function):
        raise ValueError(f"opener {opener!r} is not of the form module:function")
    owner = OPENERS.setdefault(scheme, opener)
    if owner != opener:
        raise ValueError(f"scheme {scheme!r} is opened by {owner} already")


def open_url(url: str) -> Transport:
    """The transport a URL names.

    Raises:
        ValueError: no transport has that scheme, the scheme's transport has no such place, or it needs a library that
            is not installed.
    """
    scheme = urlsplit(url).scheme
    opener = OPENERS.get(scheme)
    if opener is None:
        raise ValueError(f"no transport opens {url!r}; known schemes: {', '.join(sorted(OPENERS))}")
    module, _, function = opener.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as wrong:
        raise ValueError(f"{scheme}:// needs {wrong.name}: pip install 'smartserver[{scheme}]'") from None
    transport: Transport = getattr(loaded, function)(url)
    return transport
