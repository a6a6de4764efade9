"""Bounded field types that several verbs share. The decoder, the reference page and tests use their bounds and
examples."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_NAME = 1024
"""The most bytes of a ref name, revision id or map key (DESIGN 3)."""

MAX_KINDS = 255
"""The most kinds of a repository."""

MAX_IDS = 4096
"""The most ids in one list of a call."""

NAMES_A_REF = {"names": "a ref"}
"""The mark of the type of a field in which `.` may denote the branch that the request's path names (`verbs.here`)."""

Id = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_NAME, examples=[bytes(range(20))])]
"""A revision id, binary."""

RefName = Annotated[
    bytes, msgspec.Meta(min_length=1, max_length=MAX_NAME, examples=[b"refs/heads/main"], extra=NAMES_A_REF)
]
"""The name of a ref."""

Expected = Annotated[bytes, msgspec.Meta(max_length=MAX_NAME, examples=[bytes(range(20))])]
"""The tip that a ref is expected to have. Empty means that the ref is expected not to exist."""

Small = Annotated[bytes, msgspec.Meta(max_length=4096, examples=[b"refs/heads/main"])]
"""An opaque small value."""

MAX_VALUE = 64 * 1024
"""The most bytes of an entry's value."""

Value = Annotated[bytes, msgspec.Meta(max_length=MAX_VALUE, examples=[bytes(range(20))])]
"""The value of an entry of a map."""

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
"""A short identifier."""
