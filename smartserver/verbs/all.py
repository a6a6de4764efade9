"""Declares every verb when it is imported. The client imports only the verbs that it calls."""

from __future__ import annotations

import importlib
import pkgutil

import smartserver.verbs
from smartserver.verbs.declare import VERBS, AnyVerb

for _module in pkgutil.iter_modules(smartserver.verbs.__path__):
    if _module.name != "all":
        importlib.import_module(f"smartserver.verbs.{_module.name}")


def every_verb() -> list[AnyVerb]:
    """Return all verbs, sorted by name."""
    return [VERBS[name] for name in sorted(VERBS)]
