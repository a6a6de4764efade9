from __future__ import annotations

from pathlib import Path

import pytest

from netem.ratchet import Budgets, BudgetsError

TEXT = """\
# Why they are what they are.
[operations]

push = 3   # it must ask first
"pull one revision" = 2
'log' = 1

[verbs]
ping = 2
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "budgets.toml"
    path.write_text(TEXT)
    return path


def test_what_was_written_into_the_file_meanwhile_stays(path: Path) -> None:
    budgets = Budgets(path)
    budgets.measured("push", 1)
    budgets.measured("ping", 1)
    meanwhile = TEXT.replace("ping = 2", "ping = 0") + "clone = 4  # new\n"
    path.write_text(meanwhile)
    path.chmod(0o640)
    budgets.lower()
    assert path.read_text() == meanwhile.replace("push = 3 ", "push = 1 ")
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_link_to_the_file_stays_one(path: Path) -> None:
    link = path.with_name("link.toml")
    link.symlink_to(path.name)
    budgets = Budgets(link)
    budgets.measured("push", 1)
    budgets.lower()
    assert link.is_symlink()
    assert "push = 1 " in path.read_text()


def test_line_ends_are_kept(path: Path) -> None:
    path.write_bytes(b"# why\r\npush = 3\r\nlog = 1")
    budgets = Budgets(path)
    budgets.measured("push", 2)
    budgets.measured("log", 0)
    budgets.lower()
    assert path.read_bytes() == b"# why\r\npush = 2\r\nlog = 0"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("push = ", r"budgets\.toml: "),
        ("push = 'one'", r":1: expected a budget"),
        ("push = -1", r":1: expected a budget"),
        ("push = 1.5", r":1: expected a budget"),
        ("# fine\npush = [\n1,\n]", r":2: expected a budget"),
        ("a.b = 1", r":1: expected a budget"),
        ("[a]\npush = 1\n[b]\n'push' = 1", r":4: 'push' stands twice"),
    ],
)
def test_a_file_that_is_none(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(BudgetsError, match=why):
        Budgets(path)
