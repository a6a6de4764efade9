"""Brz commands as forked processes: a start takes a fifth of the time.

Our plugin is imported before, but for the module that tells Breezy of it when the first URL is met. What a command
imports, and when, is tried where brz is started as users do it (`test_brz_process`).
"""

from __future__ import annotations

from forks import Forks

FORKS = Forks(
    "breezy.annotate",
    "breezy.breakin",
    "breezy.builtins",
    "breezy.bzr.branch",
    "breezy.bzr.groupcompress_repo",
    "breezy.bzr.smart.medium",
    "breezy.bzr.testament",
    "breezy.bzr.transform",
    "breezy.bzr.workingtree_4",
    "breezy.email_message",
    "breezy.forge",
    "breezy.git",
    "breezy.gpg",
    "breezy.library_state",
    "breezy.log",
    "breezy.merge",
    "breezy.plugin",
    "breezy.push",
    "breezy.revisionspec",
    "breezy.rules",
    "breezy.symbol_versioning",
    "breezy.tag",
    "breezy.transport.http.urllib",
    "breezy.transport.memory",
    "breezy.ui.text",
    "breezy.views",
    "dataclasses",
    "dulwich.config",
    "encodings.idna",
    "logging",
    "msgspec",
    "smartserver.client.listing",
    "smartserver.client.media.tcp",
    "smartserver.client.places",
    "smartserver.client.repository",
    "smartserver.client.mirrors",
    "smartserver.plugins.breezy.copy",
    "smartserver.plugins.breezy.inter",
    "smartserver.plugins.breezy_shim",
    "smartserver.records.bulk",
    "smartserver.trace.text",
    "smartserver.vcs.bzr.repository",
    "smartserver.vcs.bzr.tree",
    "smartserver.verbs.map_update",
    "smartserver.verbs.repository_list",
    "smartserver.verbs.repository_verify",
    "urllib.parse",
    "zstandard",
)
