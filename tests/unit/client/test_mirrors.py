"""client.mirrors: what is kept is whole, in bounds, and goes where it may."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from smartserver.client.mirrors import ALL_MIRRORS, MirrorFolder, Mirrors

URL = "hpss://host:4155/project"


def made(mirrors: Mirrors, url: str = URL, incarnation: bytes = b"one", size: int = 100) -> MirrorFolder:
    """A mirror with a file of so many bytes, which is not in use."""
    place = mirrors.place(url, incarnation)
    with place.writing() as alone:
        assert alone
        path = place.begin()
        Path(path, "pack").write_bytes(bytes(size - len(url)))
        place.publish(path)
    return place


def urls(mirrors: Mirrors) -> list[str]:
    return [each.url for each in mirrors.kept()]


@pytest.fixture
def mirrors(tmp_path: Path) -> Mirrors:
    return Mirrors(str(tmp_path / "cache" / "mirrors"), 1000)


def test_what_is_half_made_is_not_there(mirrors: Mirrors) -> None:
    place = mirrors.place(URL, b"one")
    with place.writing() as alone:
        assert alone
        half = place.begin()
        assert not place.use()
        assert mirrors.kept() == []
        assert mirrors.make_room(0)
        assert os.path.exists(half), "it is being made"
    assert not os.path.exists(half), "nothing came of it"
    Path(half).mkdir()  # As where its process was ended.
    Path(half, "pack").write_bytes(b"half")
    assert mirrors.make_room(0)
    assert not os.path.exists(half)
    Path(place.path + ".new").mkdir()
    assert made(mirrors).use()


def test_one_writes_at_a_time(mirrors: Mirrors) -> None:
    place, other = mirrors.place(URL, b"one"), mirrors.place(URL, b"one")
    with place.writing() as alone:
        assert alone
        with other.writing() as second:
            assert not second
    with other.writing() as alone:
        assert alone


def test_the_oldest_goes_first(mirrors: Mirrors) -> None:
    names = [f"hpss://host/{number}" for number in range(ALL_MIRRORS)]
    places = [made(mirrors, name, size=900) for name in names]
    for number, place in enumerate(places):
        os.utime(place.path, (number, number))
    assert urls(mirrors) == names[::-1]
    assert mirrors.make_room(400)
    assert len(urls(mirrors)) == ALL_MIRRORS
    assert places[0].use(), "now it is the one used last, and in use"
    new = mirrors.place(URL, b"one")
    assert new.takes(1000)
    assert sorted(urls(mirrors)) == [names[0], *names[2:]]
    assert not mirrors.make_room(ALL_MIRRORS * 1000 - 899), "what is in use stays"
    assert urls(mirrors) == [names[0]]


def test_what_became_too_large_goes_when_it_is_not_used_any_more(mirrors: Mirrors) -> None:
    place = made(mirrors)
    assert place.use()
    Path(place.path, "index").write_bytes(bytes(901))
    other = mirrors.place(URL, b"one")
    assert other.use()
    del place
    gc.collect()
    assert urls(mirrors) == [URL]
    del other
    gc.collect()
    assert urls(mirrors) == []


def test_it_is_removed_unless_it_is_in_use(mirrors: Mirrors) -> None:
    place = made(mirrors)
    assert place.use()
    assert not mirrors.remove(place.name)
    place.throw_away()
    assert not place.use()
    assert mirrors.kept() == []
    place = made(mirrors)
    assert mirrors.remove(place.name)
    assert not mirrors.place(URL, b"one").use()
    assert [name for name in os.listdir(mirrors.folder) if "." not in name] == []
