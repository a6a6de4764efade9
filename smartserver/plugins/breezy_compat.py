"""What of Breezy has moved between its releases, or will: 3.3 is what is tried, 3.4 what its source says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from breezy import debug
from breezy.branch import _fix_overwrite_type as overwritten
from breezy.bzr.bzrdir import BzrDir, BzrDirMetaFormat1
from breezy.bzr.testament import Testament
from breezy.bzr.versionedfile import (
    AbsentContentFactory,
    ChunkedContentFactory,
    ExistingContent,
    FulltextContentFactory,
    VersionedFiles,
)

try:
    from vcsgraph.errors import GhostRevisionsHaveNoRevno
    from vcsgraph.graph import CachingParentsProvider, Graph, StackedParentsProvider
except ImportError:  # Before 3.3.12
    from breezy.errors import GhostRevisionsHaveNoRevno
    from breezy.graph import CachingParentsProvider, Graph, StackedParentsProvider

__all__ = [
    "AbsentContentFactory",
    "BzrDir",
    "BzrDirMetaFormat1",
    "ChunkedContentFactory",
    "ExistingContent",
    "FulltextContentFactory",
    "GhostRevisionsHaveNoRevno",
    "Graph",
    "Testament",
    "VersionedFiles",
    "chk_inventory",
    "dirstate_tree",
    "is_debugged",
    "load_formats",
    "make_graph",
    "overwritten",
]


def load_formats() -> None:
    """Have Breezy's own formats registered, and what goes between them."""
    importlib.import_module("breezy.bzr.vf_repository")


def chk_inventory() -> Any:
    """The class of inventories that lie in pages."""
    try:
        return importlib.import_module("breezy.bzr.inventory").CHKInventory
    except ImportError:  # Breezy 3.4
        return importlib.import_module("bzrformats.inventory").CHKInventory


def dirstate_tree() -> Any:
    """The class of working trees, if any was loaded."""
    found = sys.modules.get("breezy.bzr.workingtree_4")
    return None if found is None else found.DirStateWorkingTree


def make_graph(providers: Sequence[Any]) -> Graph:
    """A graph of what any of these knows parents of."""
    return Graph(CachingParentsProvider(StackedParentsProvider(list(providers))))


def is_debugged(flag: str) -> bool:
    """Whether the user has given `-D` and this flag."""
    enabled = getattr(debug, "debug_flag_enabled", None)  # Since 3.4
    return bool(enabled(flag)) if enabled is not None else flag in debug.debug_flags
