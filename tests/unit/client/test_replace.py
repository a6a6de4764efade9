"""client.replace: a file that is replaced at once, or stays as it was."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from smartserver.client.replace import check_folder, new_file


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
