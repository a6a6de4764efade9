"""Importing this module registers every version-control system: each package here has a module `system`."""

from __future__ import annotations

import importlib
import pkgutil

import smartserver.vcs

for _module in pkgutil.iter_modules(smartserver.vcs.__path__):
    if _module.ispkg:
        importlib.import_module(f"smartserver.vcs.{_module.name}.system")
