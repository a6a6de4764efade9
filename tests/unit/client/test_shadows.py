"""client.shadows: what is kept is whole, in bounds, and goes where it may."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from smartserver.client.shadows import ALL_SHADOWS, Place, Shadows

URL = "hpss://host:4155/project"


def made(shadows: Shadows, url: str = URL, incarnation: bytes = b"one", size: int = 100) -> Place:
    """A shadow with a file of so many bytes, which is not in use."""
    place = shadows.place(url, incarnation)
    with place.writing() as alone:
        assert alone
        path = place.begin()
        Path(path, "pack").write_bytes(bytes(size - len(url)))
        place.publish(path)
    return place


def urls(shadows: Shadows) -> list[str]:
    return [each.url for each in shadows.kept()]


@pytest.fixture
def shadows(tmp_path: Path) -> Shadows:
    return Shadows(str(tmp_path / "cache" / "shadows"), 1000)


def test_what_was_made_is_there(shadows: Shadows) -> None:
    assert shadows.kept() == []
    assert not shadows.place(URL, b"one").use()
    place = made(shadows)
    assert place.use()
    assert (place.size(), Path(place.path, "pack").stat().st_size) == (100, 100 - len(URL))
    (kept,) = shadows.kept()
    assert (kept.name, kept.url, kept.size) == (place.name, URL, 100)
    assert os.stat(shadows.folder).st_mode & 0o777 == 0o700


def test_a_repository_made_anew_has_another_one(shadows: Shadows) -> None:
    before = made(shadows)
    made(shadows, "hpss://other/")
    place = shadows.place(URL, b"two")
    assert not place.use()
    made(shadows, incarnation=b"two")
    assert place.use()
    assert not os.path.exists(before.path)
    assert sorted(urls(shadows)) == [URL, "hpss://other/"]


def test_what_is_half_made_is_not_there(shadows: Shadows) -> None:
    place = shadows.place(URL, b"one")
    with place.writing() as alone:
        assert alone
        half = place.begin()
        assert not place.use()
        assert shadows.kept() == []
        assert shadows.make_room(0)
        assert os.path.exists(half), "it is being made"
    assert not os.path.exists(half), "nothing came of it"
    Path(half).mkdir()  # As where its process was ended.
    Path(half, "pack").write_bytes(b"half")
    assert shadows.make_room(0)
    assert not os.path.exists(half)
    Path(place.path + ".new").mkdir()
    assert made(shadows).use()


def test_one_writes_at_a_time(shadows: Shadows) -> None:
    place, other = shadows.place(URL, b"one"), shadows.place(URL, b"one")
    with place.writing() as alone:
        assert alone
        with other.writing() as second:
            assert not second
    with other.writing() as alone:
        assert alone


def test_the_oldest_goes_first(shadows: Shadows) -> None:
    names = [f"hpss://host/{number}" for number in range(ALL_SHADOWS)]
    places = [made(shadows, name, size=900) for name in names]
    for number, place in enumerate(places):
        os.utime(place.path, (number, number))
    assert urls(shadows) == names[::-1]
    assert shadows.make_room(400)
    assert len(urls(shadows)) == ALL_SHADOWS
    assert places[0].use(), "now it is the one used last, and in use"
    new = shadows.place(URL, b"one")
    assert new.takes(1000)
    assert sorted(urls(shadows)) == [names[0], *names[2:]]
    assert not shadows.make_room(ALL_SHADOWS * 1000 - 899), "what is in use stays"
    assert urls(shadows) == [names[0]]


def test_one_may_not_take_more_than_its_share(shadows: Shadows) -> None:
    place = made(shadows)
    assert place.takes(900)
    assert not place.takes(901)
    assert not shadows.place("hpss://other/", b"one").takes(1001)


def test_what_became_too_large_goes_when_it_is_not_used_any_more(shadows: Shadows) -> None:
    place = made(shadows)
    assert place.use()
    Path(place.path, "index").write_bytes(bytes(901))
    other = shadows.place(URL, b"one")
    assert other.use()
    del place
    gc.collect()
    assert urls(shadows) == [URL]
    del other
    gc.collect()
    assert urls(shadows) == []


def test_it_is_removed_unless_it_is_in_use(shadows: Shadows) -> None:
    place = made(shadows)
    assert place.use()
    assert not shadows.remove(place.name)
    place.throw_away()
    assert not place.use()
    assert shadows.kept() == []
    place = made(shadows)
    assert shadows.remove(place.name)
    assert not shadows.place(URL, b"one").use()
    assert [name for name in os.listdir(shadows.folder) if "." not in name] == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    shadows = Shadows(str(tmp_path / "cache" / "shadows"))
    place = shadows.place(URL, b"one")
    assert not place.use()
    assert shadows.kept() == []
    with pytest.raises(OSError, match="cache"), place.writing():
        pass
