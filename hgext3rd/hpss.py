"""use hpss:// URLs, each command one round trip

``smartserver setup hg`` enables it. It needs smartserver in a Python of the same version as that of hg. If smartserver
is not installed beside hg, ``hpss.path`` names further folders of Python modules, with colons between them.
"""

# Every command of hg runs this file, maybe on a Python that is too old for smartserver or without it. So it imports
# Mercurial and the standard library alone, its syntax is that of Python 3.9, and the rest is loaded with the first URL.

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Callable

from hgdemandimport import deactivated
from mercurial import extensions, registrar

testedwith = b"6.3 6.9 7.2"
minimumhgversion = b"6.3"

configtable: dict[bytes, Any] = {}
_item = registrar.configitem(configtable)
_item(b"hpss", b"path", default=b"")
_item(b"hpss", b"debug", default=b"")

SCHEMES = (b"hpss", b"hpss+tls", b"hpss+ssh", b"hpss+sftp", b"hpss+s3", b"hpss+vfs")

COMPILED = ("msgspec._core", "zstandard.backend_c")
"""Modules that show whether smartserver's libraries are built for this Python."""


class Scheme:
    """Loads smartserver when Mercurial asks for the first peer. Smartserver then registers its own object for the
    scheme."""

    def __init__(self, scheme: bytes, load: Callable[[], Any]) -> None:
        self._scheme = scheme
        self._load = load

    def make_peer(self, *args: Any, **named: Any) -> Any:
        """Return the peer of a URL."""
        return self._load().peer_schemes()[self._scheme].make_peer(*args, **named)

    def instance(self, *args: Any, **named: Any) -> Any:
        """Return the peer of a URL, in Mercurial 6.3."""
        return self._load().peer_schemes()[self._scheme].instance(*args, **named)

    def islocal(self, _path: bytes) -> bool:
        """Return False: our URLs are not those of local folders."""
        return False


def uisetup(ui: Any) -> None:
    """Register the schemes, so that the first URL of one loads smartserver."""
    places = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    places += os.fsdecode(ui.config(b"hpss", b"path")).split(os.pathsep)
    places = [os.path.expanduser(place) for place in places]
    places = [place for place in places if place and place not in sys.path]
    problem = lacks(places)
    if problem:
        ui.warn(b"hpss is off: %s\n" % problem)
        return
    sys.path += places  # Last, so that hg finds its own libraries first.
    from smartserver.plugins.mercurial import compat

    waiting = [ui]

    def load() -> Any:
        if waiting:
            # Python forgets a ^C in a module that is loaded lazily, and reports a missing name.
            with deactivated():
                extension = import_module("smartserver.plugins.mercurial.extension")
            first = waiting.pop()
            extension.uisetup(first)
            extension.extsetup(first)
        return compat

    def peer(orig: Any, uiorrepo: Any, opts: Any, path: Any, *args: Any, **named: Any) -> Any:
        if waiting and compat.location(path).split(b":", 1)[0] in SCHEMES:
            # Called again, because the extension wraps this function.
            return load().FACTORY.peer(uiorrepo, opts, path, *args, **named)
        return orig(uiorrepo, opts, path, *args, **named)

    for scheme in SCHEMES:
        compat.peer_schemes()[scheme] = Scheme(scheme, load)
    extensions.wrapfunction(compat.FACTORY, "peer", peer)


def lacks(places: list[str]) -> bytes:
    """Return the reason why smartserver does not run in this Python, and what to do; empty if it runs."""
    if sys.version_info < (3, 11):
        return (
            b"it needs Python 3.11, hg runs on %d.%d; pip install 'smartserver[hg]' brings another hg"
            % (sys.version_info[:2])
        )
    for name in COMPILED:
        library = name.partition(".")[0]
        package = PathFinder.find_spec(library, [*sys.path, *places])
        folders = package.submodule_search_locations if package else None
        if not folders or PathFinder.find_spec(name, folders) is None:
            python = os.fsencode(sys.executable or "python3")
            return b"the Python of hg lacks %s; run %s -m pip install smartserver" % (os.fsencode(library), python)
    return b""
