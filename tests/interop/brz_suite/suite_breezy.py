"""Breezy with the plugin of this tree loaded, in an environment of the harness's own: to be imported first."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import breezy
import breezy.plugin

SHIM = Path(__file__).parents[3] / "smartserver" / "plugins" / "breezy_shim"

os.environ.update(BRZ_PLUGINS_AT=f"hpss@{SHIM}", BRZ_PLUGIN_PATH="-core:-site:-user", BRZ_LOG=os.devnull)
os.environ.pop("XDG_CACHE_HOME", None)  # What the plugin keeps lies in the home of each case.
breezy.initialize().__enter__()
breezy.plugin.load_plugins()

hpss = importlib.import_module("breezy.plugins.hpss")
"""The plugin as Breezy has loaded it."""
