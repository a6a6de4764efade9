"""gateway.places: programs take turns."""

from __future__ import annotations

from functools import partial

from smartserver.gateway.places import Places


def test_the_address_with_the_fewest_programs_comes_first() -> None:
    places, begun = Places(2), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        places.take(name[0], partial(begun.append, name))
    assert begun == ["a1", "a2"]
    places.leave("a")
    assert begun == ["a1", "a2", "b1"]
    places.leave("b")
    assert begun == ["a1", "a2", "b1", "a3"]
    places.leave("a")
    places.leave("a")
    places.take("c", partial(begun.append, "c1"))
    assert begun[-1] == "c1"
