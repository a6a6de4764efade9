"""The names and prefixes of refs that have a meaning in git."""

from __future__ import annotations

from typing import Final

HEAD: Final = "HEAD"
"""The setting of a repository that names the branch a clone checks out."""

HEADS: Final = b"refs/heads/"
TAGS: Final = b"refs/tags/"

SHORT_FOR: Final = (b"", b"refs/", TAGS, HEADS, b"refs/remotes/")
"""The prefixes that a short name may lack, in git's order."""
