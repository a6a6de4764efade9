"""client.vfs_transport: its steps and files as calls; its promises are in simulated/test_vfs.py."""

from __future__ import annotations

import pytest

from smartserver.client.url import BadUrl
from smartserver.client.vfs_transport import from_url


@pytest.mark.parametrize("url", ["vfs:///a", "vfs://host:x/", "hpss://host/", "vfs://me@host/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        from_url(url)
