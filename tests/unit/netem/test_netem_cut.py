from __future__ import annotations

import pytest
from effects_cases import through

from netem.effects import Ending
from netem.effects.cut import Cut

MORE, EOF, CUT = Ending


@pytest.mark.parametrize("after", range(8))
def test_exactly_so_many_bytes_come_out(after: int) -> None:
    out = through(Cut(after), (0, b"abc"), (1, b"defg"), (2, b"hij"), (3, b"", EOF))
    assert b"".join(data for _, data, _ in out) == b"abcdefghij"[:after]
    assert [ending for _, _, ending in out].count(CUT) == 1
    assert out[-1][2] is CUT


def test_the_cut_comes_with_the_last_byte_that_passes() -> None:
    assert through(Cut(3), (0, b"abc"), (1, b"d")) == [(0, b"abc", CUT)]


def test_arguments() -> None:
    assert Cut.parse("64KiB") == Cut(65536)
    with pytest.raises(ValueError, match="0 or more"):
        Cut(-1)
