"""vcs.git.objects: a file that git reads what it is asked from."""

from __future__ import annotations

import os
import subprocess

import pytest

from smartserver.vcs.git.objects import SHORT, scratch


@pytest.mark.parametrize("size", [0, SHORT, SHORT + 1])
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_file_without_a_name_is_read_from_its_start(
    size: int, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    content = b"?" * size
    with scratch(content) as file:
        assert subprocess.run(["cat"], stdin=file, capture_output=True, check=True).stdout == content
        file.write(b"more")
        file.seek(size)
        assert file.read() == b"more"
    assert file.closed
