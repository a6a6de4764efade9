"""smartserver.cli.reference: how types, bounds and defaults of a declaration are written for a reader of the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from smartserver.cli.main import COMMANDS
from smartserver.cli.reference import MADE, _default, _type, commands, counters, errors, pages, verbs
from smartserver.meters import METERS
from smartserver.verbs.all import every_verb
from smartserver.verbs.rules import Rule
from transports.errors import CodedError


class Inner(msgspec.Struct, array_like=True):
    name: str
    size: int


class Defaults(msgspec.Struct, array_like=True):
    needed: int
    zero: int = 0
    rule: Rule = Rule.FF
    names: list[str] = []


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (bytes, "bin"),
        (str, "str"),
        (int, "int"),
        (bool, "bool"),
        (list[bytes], "array of bin"),
        (dict[str, bytes], "map of str to bin"),
        (bytes | None, "bin or nil"),
        (Annotated[bytes, msgspec.Meta(max_length=1024)], "bin (at most 1,024)"),
        (Annotated[bytes, msgspec.Meta(min_length=1)], "bin (at least 1)"),
        (Annotated[list[int], msgspec.Meta(min_length=2, max_length=65536)], "array of int (2 to 65,536)"),
        (Annotated[int, msgspec.Meta(description="a number")], "int"),
        (list[Annotated[str, msgspec.Meta(max_length=9)]], "array of str (at most 9)"),
        (Inner, "[name: str, size: int]"),
        (Rule, "one of " + ", ".join(f"`{rule.value}`" for rule in Rule)),
    ],
)
def test_types(annotation: object, shown: str) -> None:
    assert _type(annotation) == shown


def test_defaults() -> None:
    shown = {each.name: _default(each) for each in msgspec.structs.fields(Defaults)}
    assert shown == {"needed": "required", "zero": "`0`", "rule": f"`{Rule.FF.value!r}`", "names": "`[]`"}


def test_each_page_says_that_it_is_made() -> None:
    made = pages()
    assert msgspec.json.decode(made.pop("trace-schema.json"))["$defs"]
    assert set(made) == {"verbs.md", "errors.md", "cli.md", "bans.md", "counters.md"}
    for text in made.values():
        assert text.startswith("# ")
        assert MADE in text
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def test_each_verb_has_its_facts() -> None:
    text = verbs()
    for verb in every_verb():
        assert f"| [`{verb.name}`](#{verb.name.lower().replace('.', '')}) | {verb.effect.value} |" in text
        _, _, section = text.partition(f"\n## {verb.name}\n")
        section = section.partition("\n## ")[0]
        assert verb.summary in section
        for struct in (verb.request_type, verb.result_type):
            for position, field in enumerate(struct.__struct_fields__):
                assert f"| {position} | `{field}` |" in section
        for error in verb.errors:
            assert f"`{error.code}`" in section.partition("### Errors")[2]


def test_each_error_is_a_row() -> None:
    rows = [line for line in errors().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == sorted(CodedError.by_code)
    assert "| `limit-exceeded` | `what`, `value`, `limit` | A number is over a limit. |" in rows


def test_each_counter_is_a_row_below_its_group() -> None:
    text = counters()
    for meter in METERS:
        section = text.partition(f"\n## {meter.group}\n")[2].partition("\n## ")[0]
        assert f"\n| `{meter.name}` | {meter.help} |\n" in f"{section}\n"


def test_each_command_that_is_shown_has_its_help() -> None:
    text = commands()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[0] == "## smartserver"
    for name in COMMANDS:
        assert (f"## smartserver {name}" in titles) == (name != "docs")
    assert "## smartserver setup git" in titles
    assert text.count("```") == 2 * len(titles)
    assert text.count("-h, --help") == len(titles)
