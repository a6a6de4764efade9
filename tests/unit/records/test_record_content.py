"""records.content: how what cannot be read is told."""

from __future__ import annotations

import pytest

from smartserver.errors import CorruptRecord
from smartserver.records.content import damage_of


def test_a_wrong_value_is_damage_of_the_revision() -> None:
    with pytest.raises(CorruptRecord, match="it cannot be read: cut off"), damage_of(b"one"):
        raise ValueError("cut off")


def test_any_other_fault_is_not() -> None:
    with pytest.raises(KeyError), damage_of(b"one"):
        raise KeyError
