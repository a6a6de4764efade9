"""^C at each moment in which a fetch makes what it has received part of the repository: no chance decides which."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from git_moments import moments
from git_sides import SETTINGS, Served, environment

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.mark.parametrize(
    ("limit", "steps"),
    [
        (1, {"unnamed_file unlink", "_install open", "_install rename", "Fetch.close unlink"}),
        (100, {"unnamed_file unlink", "_unpack mkdir", "_unpack rename", "_clear rmdir"}),
    ],
    ids=["pack", "loose"],
)
def test_whatever_the_moment_nothing_is_left(served: Served, tmp_path: Path, limit: int, steps: set[str]) -> None:
    env = environment(tmp_path)
    (tmp_path / ".gitconfig").write_text(SETTINGS)
    url = f"hpss://127.0.0.1:{served.direct[1]}/{tmp_path.name}"

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "a")
    git("-C", "a", "commit", "-q", "--allow-empty", "-m", "one")
    (tmp_path / "a" / "file").write_text("text\n")
    git("-C", "a", "add", "file")
    git("-C", "a", "commit", "-q", "-m", "two")
    git("-C", "a", "push", "-q", url, "main")
    git("init", "-q", "--bare", "b")
    git("-C", "b", "config", "fetch.unpackLimit", str(limit))
    found = moments(url, git("-C", "a", "rev-parse", "main").strip(), tmp_path / "b", env)
    assert steps <= {moment.at for moment in found}
    assert [moment for moment in found if moment.left or moment.status not in (0, 130)] == []
    assert found[-1] == ("", 0, []), "the last one came to its end"
    assert found[0].status == 130
