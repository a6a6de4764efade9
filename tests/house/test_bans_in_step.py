"""Every rule in the documents is tried: there is a test in which it fires and one in which it does not."""

from __future__ import annotations

import ast
import re

import pytest
from sources import ROOT, sources

from smartserver.trace.bans.every import BEHAVIOURS, SILLY, bans
from smartserver.trace.bans.rule import Rule

CASES = "tests/unit/trace/bans/ban_cases.py"
COMMANDS = "tests/sockets/test_vfs_bans.py"

RULE = re.compile(r"(?<![\w/:])(?:vfs|rpc|\*):[\w.*]+(?::[\w./*?]+)?")
"""One with a side, as it stands in a text."""


def rules_in(text: str) -> set[str]:
    """The rules a text names, sentences ended by a dot or not."""
    found = {each.rstrip(".") for each in RULE.findall(text)}
    return found | {name for name in (*BEHAVIOURS, SILLY) if re.search(rf"(?<![\w-]){name}(?![\w-])", text)}


def table_in(path: str, table: str) -> dict[str, ast.expr]:
    """A table by rule, in a file of tests."""
    (file,) = (each for each in sources(path.rpartition("/")[0]) if each.path == path)
    for node in file.tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table and isinstance(node.value, ast.Dict):
            items = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): value for key, value in items if key is not None}
    raise AssertionError(f"{path} has no table {table}")


def documented() -> set[str]:
    """The rules that the documents name."""
    pages = [*(ROOT / "doc").rglob("*.md"), *ROOT.glob("*.md")]
    return {rule for page in pages for rule in rules_in(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("table", ["FIRES", "SILENT"])
def test_every_rule_in_the_documents_has_its_cases(table: str) -> None:
    cases = table_in(CASES, table)
    tried = {rule for rule, each in cases.items() if isinstance(each, ast.List) and each.elts}
    assert documented() >= {*BEHAVIOURS, SILLY}
    assert documented() <= tried, f"add them to {table} in {CASES}"


def test_every_rule_in_the_documents_is_tried_over_the_file_level_verbs() -> None:
    assert documented() == table_in(COMMANDS, "STOPS").keys(), f"STOPS in {COMMANDS}"


def test_every_behaviour_says_what_it_is() -> None:
    for name, behaviour in BEHAVIOURS.items():
        text = behaviour.__doc__ or ""
        assert text.count("Seen: ") == text.count("\n\n") == 1, name
        assert re.search(r"\bcounts?\b", text), name
        assert behaviour.__module__.rpartition(".")[2] == name.replace("-", "_")
    assert [type(each) for each in bans(["vfs:*"])] == [Rule]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`vfs:*` and rpc:Repository.pack.", {"vfs:*", "rpc:Repository.pack"}),
        ("--ban '*:*:secret/*', -Dhpss-ban=vfs:*:*/lock/*,silly", {"*:*:secret/*", "vfs:*:*/lock/*", "silly"}),
        ("a duplicate-free `read-back`", {"read-back"}),
        ("hpss+vfs://host and grpc:x", set()),
    ],
)
def test_the_check_itself(text: str, found: set[str]) -> None:
    assert rules_in(text) == found
