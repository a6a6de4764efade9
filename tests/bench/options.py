"""The arguments and options that measurements share, and the pages that `--write` changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from netem.units import parse_rate, parse_time
from smartserver.cli.errors import CommandError

MEASUREMENTS = Path("doc/measurements")
"""The pages that measurements write."""

Function = Callable[..., Any]
Option = Callable[[Function], Function]


class Unit(click.ParamType[Any]):
    name = "text"

    def __init__(self, parse: Callable[[str], float]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as wrong:
            raise CommandError(str(wrong)) from None


TIME, RATE = Unit(parse_time), Unit(parse_rate)


def path(*, required: bool = True) -> Option:
    """PATH: a git repository or bundle, or a folder."""
    return click.argument("path", required=required, type=click.Path(path_type=Path, exists=True))


def number(names: str, default: int, words: str) -> Option:
    """A number of 1 or more; `names` are the option's, with spaces between them."""
    return click.option(*names.split(), type=click.IntRange(1), default=default, show_default=True, help=words)


def rtts(words: str = "three or more for a slope") -> Option:
    return click.option("--rtt", "rtts", type=TIME, multiple=True, help=f"Round-trip time of the link; {words}.")


def only(names: Sequence[str], metavar: str, words: str) -> Option:

    def known(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in value if name not in names]:
            raise click.UsageError(f"--only {unknown[0]!r}: there is {', '.join(names)}")
        return value

    return click.option("--only", multiple=True, metavar=metavar, help=f"{words}; repeatable.", callback=known)


def write(pages: str) -> Option:
    return click.option("--write", is_flag=True, help=f"Also write {pages}, here.")


def marks(name: str) -> tuple[str, str]:
    """The lines between which a measurement writes in a page."""
    written = f"written by `bench {name} --write`"
    return f"<!-- Begin: {written}; do not edit. -->", f"<!-- End of what is {written}. -->"


def put(text: str, name: str, inside: str) -> str:
    """The page with this between the marks of a measurement."""
    first, last = marks(name)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise CommandError(f"the page lacks a line {(first if not begin else last)!r}")
    return f"{before}{first}\n\n{inside}\n\n{last}{after}"


class Pages:
    """The pages a measurement writes. They are read first, so that a missing mark is told before anything is run."""

    def __init__(self, name: str, *paths: Path) -> None:
        self._name = name
        self._texts = {path: path.read_text(encoding="utf-8") for path in paths}
        for text in self._texts.values():
            put(text, name, "")

    def write(self, *insides: str) -> None:
        """One for each page."""
        for (path, text), inside in zip(self._texts.items(), insides, strict=False):
            path.write_text(put(text, self._name, inside), encoding="utf-8")
