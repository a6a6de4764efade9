"""smartserver.cli.access: `access check` and `access explain`; and an access file of a server that runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import why
from click.testing import CliRunner

from smartserver.cli.main import group

MAIN = "refs/heads/main"
RULE_1 = 'rule 1 (who = ["anna"], path = "p/**", may = "create")'
RULES = '[[rules]]\nwho = ["anna"]\npath = "p/**"\nmay = "create"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(RULES)
    return path


def test_a_file_is_checked(file: Path) -> None:
    result = CliRunner().invoke(group, ["access", "check", str(file)])
    assert (result.exit_code, result.output) == (0, f"{file}: anna has no key and no token\n{file}: 1 rule\n")
    hook = '[[hooks]]\npath = "**"\nbefore = ["/bin/true"]\nafter = ["/no/such"]\n'
    file.write_text(RULES + '[[limits]]\npath = "**"\nmax-file-size = 1\n' + hook + hook)
    result = CliRunner().invoke(group, ["access", "check", str(file)])
    assert result.output.endswith(
        f"{file}: hooks run /no/such, which is no program here\n{file}: 1 rule, 1 limit, 2 hooks\n"
    )
    file.write_text(RULES + "\n[[rules]]\n")
    result = CliRunner().invoke(group, ["access", "check", str(file)])
    assert why(result) == f"{file}: Object missing required field `who` - at `rule 2`"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["anna", "read", "/p/x/"], 0, f"yes: anna has the right 'read' to p/x, by {RULE_1}"),
        (["anna", "force", "p", MAIN], 1, f"no: anna does not have the right 'force' to p, {MAIN}, by {RULE_1}"),
        (["ben", "read", "p"], 1, "no: ben does not have the right 'read' to p: no rule is about that"),
    ],
)
def test_what_a_user_may_do_is_explained(file: Path, arguments: list[str], status: int, said: str) -> None:
    result = CliRunner().invoke(group, ["access", "explain", str(file), *arguments])
    assert (result.exit_code, result.output.strip()) == (status, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a b", "read", "p"], "'a b' is not a valid user name"),
        (["anna", "read", "../p"], "'..' is not allowed in it"),
        (["anna", "read", "p", "refs/heads/main"], "read is a right to the whole repository"),
    ],
)
def test_what_cannot_be_explained(file: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(group, ["access", "explain", str(file), *arguments])
    assert said in why(result)
