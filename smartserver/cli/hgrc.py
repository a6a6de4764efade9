"""A user's configuration of Mercurial: find the file, and change one item in it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from smartserver.cli.errors import CommandError


def location(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's configuration: the first of HGRCPATH, else the file of `hg config --edit`."""
    home = Path(environment.get("HOME") or Path.home())
    if "HGRCPATH" in environment:
        named = [place for place in environment["HGRCPATH"].split(os.pathsep) if place]
        if not named:
            raise CommandError("HGRCPATH is empty, so hg reads no configuration of yours: unset it")
        first = Path(os.path.expanduser(os.path.expandvars(named[0])))
        return first / "hpss.rc" if first.is_dir() else first
    settings = Path(environment.get("XDG_CONFIG_HOME") or ".")
    places = [home / ".hgrc", (settings if settings.is_absolute() else home / ".config") / "hg" / "hgrc"]
    return next((place for place in places if place.exists()), places[0])


def with_item(text: str, section: str, name: str, value: str) -> str:
    """Return a configuration with an item set to a value and all other lines unchanged."""
    if "\n" in value:
        raise CommandError(f"{value!r}: a line of hg's configuration cannot have a newline")
    lines = text.splitlines(keepends=True)
    within, last, item = "", None, None
    for number, line in enumerate(lines):
        if header := re.match(r"\[([^\[]+)\]", line):
            within = header[1]
        if within != section:
            continue
        if header or not line.isspace():
            last = number
        if re.match(rf"{re.escape(name)}\s*=", line):
            item = number
    new = f"{name} = {value}".rstrip() + "\n"
    if item is not None:
        rest = itertools.takewhile(lambda line: re.match(r"[ \t]+\S|[;#]", line), lines[item + 1 :])
        further = list(rest)  # The further lines of the old value, with comments between them.
        comments = [line for line in further if line[0] in ";#"]
        lines[item : item + 1 + len(further)] = [new, *comments]
    elif last is not None:
        lines[last] = lines[last].rstrip("\n") + "\n"
        lines.insert(last + 1, new)
    else:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines += ["\n"] * bool(lines) + [f"[{section}]\n", new]
    return "".join(lines)
