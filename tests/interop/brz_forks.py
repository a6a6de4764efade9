"""Brz commands as forked processes: a start takes a fifth of the time.

Our plugin is imported before, but for the module that tells Breezy of it when the first URL is met. What a command
imports, and when, is tried where brz is started as users do it (`test_brz_process`).
"""

from __future__ import annotations

from forks import Forks

FORKS = Forks(
    "breezy.breakin",
    "breezy.builtins",
    "breezy.bzr.transform",
    "breezy.bzr.workingtree_4",
    "breezy.email_message",
    "breezy.forge",
    "breezy.gpg",
    "breezy.library_state",
    "breezy.log",
    "breezy.merge",
    "breezy.push",
    "breezy.rules",
    "breezy.symbol_versioning",
    "breezy.transport.http.urllib",
    "breezy.ui.text",
    "breezy.views",
    "dulwich.config",
    "encodings.idna",
    "smartserver.plugins.breezy.copy",
    "smartserver.plugins.breezy.inter",
    "smartserver.records.bulk",
    "smartserver.vcs.bzr.tree",
    "zstandard",
)
