"""The kinds of the records of `bzr 2a`, and its maps."""

from __future__ import annotations

from typing import Final

from smartserver.records.model import Kind

REVISION: Final = 0
SIGNATURE: Final = 1
INVENTORY: Final = 2
CHK: Final = 3
TEXT: Final = 4

KINDS: Final = (
    Kind("revision", "blake2b-128", True),
    Kind("signature", "blake2b-128", False),
    Kind("inventory", "blake2b-128", True),
    Kind("chk", "sha1-key", True),
    Kind("text", "blake2b-128", True),
)

TAGS: Final = "tags"
"""The map of the tags of branches: their names in UTF-8, and their revisions."""

CONFIG: Final = "config"
"""The map of the options of branches, one entry for each."""

SIGNATURES: Final = "signatures"
"""The map of signatures that were added after their revisions, by revision."""
