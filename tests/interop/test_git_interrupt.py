"""^C at each moment in which a fetch makes what it has received part of the repository: no chance decides which."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from git_moments import moments
from git_sides import SETTINGS, Served, environment

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.mark.parametrize(
    ("limit", "checked", "begin", "steps"),
    [
        (
            1,
            False,
            "Inserter.insert",
            {"unnamed_file unlink", "_install open", "_install rename", "Fetch.close unlink"},
        ),
        (100, False, "_unpack", {"_unpack mkdir", "_unpack rename", "_clear rmdir", "Popen.communicate read"}),
        (1, True, "_Check.run", {"Popen.communicate read", "_install fsync", "_install rename", "Fetch.close unlink"}),
    ],
    ids=["pack", "loose", "checked"],
)
def test_whatever_the_moment_nothing_is_left(
    served: Served, tmp_path: Path, limit: int, checked: bool, begin: str, steps: set[str]
) -> None:
    """Each begins where it goes a way of its own."""
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
    git("-C", "b", "config", "fetch.fsckObjects", str(checked))
    found = moments(url, git("-C", "a", "rev-parse", "main").strip(), tmp_path / "b", env, begin)
    assert steps <= {moment.at for moment in found}
    assert [moment for moment in found if moment.left or moment.status not in (0, 130)] == []
    assert found[-1] == ("", 0, []), "the last one came to its end"
    ends = [moment.status for moment in found]
    assert ends[0] == 130
    assert ends == sorted(ends, reverse=True), "once nothing more is interrupted, nothing is"
