"""`open_url`: open the transport that a URL names. A transport's module is imported when a URL first needs it."""

from __future__ import annotations

import importlib
from urllib.parse import urlsplit

from transports.base import Transport

OPENERS: dict[str, str] = {
    "file": "transports.local:from_url",
    "s3": "transports.s3:from_url",
    "sftp": "transports.sftp:from_url",
    "vfs": "smartserver.client.vfs_transport:from_url",
}
"""Maps a scheme to `module:function`. The function takes the URL and returns a `Transport`."""


def open_url(url: str) -> Transport:
    """Return the transport that a URL names.

    Raises:
        ValueError: the scheme is unknown, the URL is invalid for its scheme, or a library is not installed.
    """
    scheme = urlsplit(url).scheme
    opener = OPENERS.get(scheme)
    if opener is None:
        raise ValueError(f"no transport opens {url!r}; known schemes: {', '.join(sorted(OPENERS))}")
    module, _, function = opener.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{scheme}:// needs {error.name}: pip install 'smartserver[{scheme}]'") from None
    transport: Transport = getattr(loaded, function)(url)
    return transport
