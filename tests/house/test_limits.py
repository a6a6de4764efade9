"""A limit is defined once, in the lowest layer that all its users may import; without such a layer, and in the two
languages, copies agree. A constant of the crate is either Python's, too, or of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from smartserver.records import bases, delta, limits, segment
from smartserver.store import ancestry, blocks, bulk, incoming, index, known_records, parts, stored_records
from smartserver.vcs import received, sending
from smartserver.vcs.bzr import kinds as bzr_kinds
from smartserver.vcs.bzr import pages, revision
from smartserver.vcs.git import objects
from smartserver.vcs.hg import delta as hg_delta
from smartserver.vcs.hg import kinds as hg_kinds
from smartserver.verbs import fields, repository_pull
from smartserver.wire import limits as wire_limits

CRATE = Path(__file__).parents[2] / "native" / "src"

PYTHON: Mapping[str, Sequence[ModuleType]] = {
    "ancestry.rs": (ancestry,),
    "bases.rs": (bases, limits),
    "bzr.rs": (bzr_kinds, pages, revision),
    "changegroup.rs": (received, hg_delta),
    "expander.rs": (bulk,),
    "frame.rs": (delta,),
    "hg.rs": (hg_kinds,),
    "index.rs": (index,),
    "introduced.rs": (bases, sending),
    "limits.rs": (limits,),
    "objects.rs": (objects,),
    "packing.rs": (delta,),
    "proof.rs": (incoming, parts),
    "prover.rs": (known_records,),
    "reader.rs": (blocks, index, stored_records),
    "segment.rs": (segment,),
    "stored.rs": (ancestry,),
}
"""The modules that say the constants of each file of the crate, with or without an underscore."""

OWN = {
    "bases.rs": {"NONE"},
    "bzr.rs": {"KEY"},
    "changegroup.rs": {"NO_BASE", "PIECE"},
    "hg.rs": {"DIGITS"},
    "introduced.rs": {"DEEPEST"},
    "packing.rs": {"NEAR"},
    "prover.rs": {"DECODED", "STEPS"},
    "reader.rs": {"BETWEEN", "ENTRY", "HASH", "HEAD", "KEPT", "MOST_BYTES", "MOST_STEPS"},
    "segment.rs": {"FEW", "FULL_KEY"},
}
"""Constants that Python has not."""

NAMES = {("proof.rs", "LARGE"): "ALONE", ("proof.rs", "MAX_CHAIN_KIB"): "MAX_CHAIN"}
"""Constants with another name in Python."""

CONSTANT = re.compile(r"^(?:pub )?const (\w+): \w+ = ([^{};]+);", re.M)


def said(text: str, known: dict[str, int]) -> int:
    """The number of an expression."""
    for pattern, python in ((r"u32::MAX", "0xffffffff"), (r" as u32", " & 0xffffffff"), (r"(?<=\d)i32", "")):
        text = re.sub(pattern, python, text)
    value: int = eval(text, {"__builtins__": {}}, dict(known))
    return value


@pytest.mark.parametrize("name", sorted(PYTHON))
def test_both_languages_say_the_same(name: str) -> None:
    found: dict[str, int] = {}
    for constant, text in CONSTANT.findall((CRATE / name).read_text()):
        if text.startswith("b"):
            continue
        found[constant] = said(text, found)
        if constant in OWN.get(name, ()):
            continue
        wanted = NAMES.get((name, constant), constant)
        places = [vars(module) for module in PYTHON[name]]
        values = [place[each] for place in places for each in (wanted, "_" + wanted) if each in place]
        assert values, f"{name}: {constant} is no constant of Python's, nor listed as one of the crate's own"
        value = getattr(values[0], "size", values[0]) >> (10 if constant == "MAX_CHAIN_KIB" else 0)
        assert found[constant] == (value if value >= 0 else value & 0xFFFFFFFF), constant
    assert found


def test_layers_that_may_not_import_each_other_say_the_same() -> None:
    """`verbs` may import neither `wire` nor, but for `model`, `records`."""
    assert repository_pull.MAX_HAVES == wire_limits.MAX_HAVES >= wire_limits.MAX_TIPS_KNOWN
    assert fields.MAX_IDS == wire_limits.MAX_ABSENT
    assert fields.MAX_NAME == limits.MAX_NAME == limits.MAX_ID
