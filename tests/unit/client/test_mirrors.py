"""client.mirrors, trust, replace: what is kept in files is whole, in bounds, and replaced at once."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from smartserver.client.medium import CannotConnect
from smartserver.client.mirrors import ALL_MIRRORS, MirrorFolder, Mirrors
from smartserver.client.replace import check_folder, new_file
from smartserver.client.tls_url import parse_tls
from smartserver.client.trust import Trust, fingerprint_known, known_servers, trust, trust_of

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


PLACE = parse_tls("hpss+tls://Example.org/x")


def test_a_fingerprint_is_known_until_it_is_forgotten(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    assert fingerprint_known("example.org:4155", environment) == ""
    path = trust("Example.org:4155", "SHA256:abc", environment)
    assert path == known_servers(environment) == str(tmp_path / ".config/smartserver/known_servers")
    trust("other.org:1", "SHA256:def", environment)
    assert fingerprint_known("example.ORG:4155", environment) == "SHA256:abc"
    assert trust_of(PLACE, environment) == Trust("SHA256:abc")
    trust("example.org:4155", "SHA256:new", environment)
    assert trust_of(PLACE, environment) == Trust("SHA256:new")
    trust("example.org:4155", "", environment)
    assert trust_of(PLACE, environment) == Trust()
    assert fingerprint_known("other.org:1", environment) == "SHA256:def"
    assert sorted(each.name for each in Path(path).parent.iterdir()) == ["known_servers", "known_servers.lock"]


def test_a_url_undoes_nothing_that_its_user_confirmed(tmp_path: Path) -> None:
    """It may come from a repository."""
    environment = {"HOME": str(tmp_path)}
    place = PLACE._replace(ca="/ours.pem")
    assert trust_of(place, environment) == Trust("", "/ours.pem")
    trust(PLACE.where, "SHA256:abc", environment)
    assert trust_of(place, environment) == Trust("SHA256:abc")


def test_where_the_file_is(tmp_path: Path) -> None:
    assert known_servers({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/smartserver/known_servers"
    assert known_servers({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == "/h/.config/smartserver/known_servers"
    assert fingerprint_known("h:1", {}) == ""
    with pytest.raises(OSError, match="HOME is not set"):
        trust("h:1", "SHA256:abc", {})


def test_lines_by_hand(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "smartserver").mkdir()
    file = tmp_path / "smartserver/known_servers"
    lines = ["", "# a comment here", "Host SHA256:abc", "[::1]:7 SHA256:def  # mine"]
    file.write_text("\n".join(lines) + "\n")
    assert fingerprint_known("host:4155", environment) == "SHA256:abc"
    assert fingerprint_known("[::1]:7", environment) == "SHA256:def"
    trust("host:4155", "SHA256:new", environment)
    assert file.read_text().splitlines() == [*lines[:2], lines[3], "host:4155 SHA256:new"]


@pytest.mark.parametrize("line", ["host", "host:4155 abc", "host:x SHA256:abc"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    """A server that the user meant would be checked less strictly."""
    (tmp_path / "smartserver").mkdir()
    (tmp_path / "smartserver/known_servers").write_text(f"h:1 SHA256:abc\n{line}\n")
    with pytest.raises(CannotConnect, match=r"known_servers, line 2: expected HOST:PORT SHA256:"):
        fingerprint_known("h:1", {"XDG_CONFIG_HOME": str(tmp_path)})


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "smartserver/known_servers").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        fingerprint_known("h:1", {"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("durable", [False, True])
def test_the_target_changes_at_the_end(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "x"
    with new_file(str(path), durable=durable) as file:
        file.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with new_file(str(path), durable=durable) as file:
        file.write(b"two")
        assert path.read_bytes() == b"one"
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("x", b"two")]


def test_a_failure_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), new_file(str(path)):
        raise KeyboardInterrupt

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, function, full)
            with pytest.raises(OSError, match="No space left"), new_file(str(path), durable=True) as file:
                file.write(b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("x", b"old")]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/x")
    with new_file(str(tmp_path / "link")) as file:
        file.write(b"by a link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/x").read_bytes() == b"by a link"
    assert len(list((tmp_path / "folder").iterdir())) == 1


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "fifo").read_bytes()))
    reader.start()
    with new_file(str(tmp_path / "fifo")) as file:
        file.write(b"text")
    reader.join()
    assert read == [b"text"]
    assert (tmp_path / "fifo").is_fifo()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    check_folder(str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError, match="there is no such folder: create it first") as wrong:
        check_folder(str(tmp_path / "absent/x"))
    assert wrong.value.filename == str(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="create it first"), new_file(str(tmp_path / "absent/x")):
        pass
