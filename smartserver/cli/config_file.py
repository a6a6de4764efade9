"""Options of a command in groups, and from a TOML file.

Each option of the command is a key of the file, by its long name without the dashes. The command line wins. A message
about an option begins with the option, or with the file and the key if its value comes from the file.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from click.core import ParameterSource

from smartserver.cli.errors import CommandError, UsageConflict

FILE = "smartserver.config"
"""The entry of a context's `meta` with the path of the file."""

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
"""The sources of a value that was given by the user."""

OTHERS = "Other options"


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups."""

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **more: Any) -> None:
        """`groups`: the names of options by the title of their group. Options without a group are in a final group."""
        super().__init__(*arguments, **more)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group."""
        title_of = {name: title for title, names in self.groups.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*self.groups, OTHERS)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                sections[title_of.get(param.name or "", OTHERS)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def read_config(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Read defaults of the command's options from a file. This is the callback of an eager option."""
    if path is None or ctx.resilient_parsing:
        return
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: not valid TOML: {error}") from None
    options = {_key(param): param for param in ctx.command.params if isinstance(param, click.Option)}
    del options["config"]
    ctx.meta[FILE] = path
    ctx.default_map = {}
    for key, value in content.items():
        option = options.get(key)
        if option is None:
            raise CommandError(f"{path}: {_unknown(ctx, key, value, options)}")
        assert option.name is not None  # Each option has one.
        ctx.default_map[option.name] = _checked(ctx, option, value, f"{path}: {key}")


def _unknown(ctx: click.Context, key: str, value: object, options: Mapping[str, click.Option]) -> str:
    """Return the message for an unknown key, with a hint about the right key or place."""
    if isinstance(value, dict):
        return f"[{key}] is a table: write the options without it, as {next(iter(value), 'workers')} = ..."
    if key in [param.name for param in ctx.command.params if isinstance(param, click.Argument)]:
        word = key.upper()
        return f"{key!r} is not an option: give {word} on the command line, as {ctx.info_name} {word} --config FILE"
    close = difflib.get_close_matches(key, options, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(options))}"
    return f"unknown key {key!r}: {hint}"


def _key(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def _checked(ctx: click.Context, option: click.Option, value: object, where: str) -> object:
    """Check the value of a key and return it for click. Numbers are converted to text for options that expect text."""
    expected: tuple[str, bool]
    if option.is_flag:
        expected = "true or false", isinstance(value, bool)
    elif option.multiple:
        expected = "an array of strings", isinstance(value, list) and all(isinstance(each, str) for each in value)
    elif isinstance(option.type, click.IntRange):
        expected = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    else:
        value = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        expected = "a string", isinstance(value, str)
    words, is_right = expected
    if not is_right:
        raise CommandError(f"{where}: expected {words}, got {value!r}")
    try:
        option.type_cast_value(ctx, value)
    except click.BadParameter as error:
        raise CommandError(f"{where}: {error.message}") from None
    return value


def given(ctx: click.Context) -> dict[str, str]:
    """Return the options that the user gave, as name of the parameter -> option in messages."""
    return {
        param.name: param.opts[0]
        for param in ctx.command.params
        if param.name and ctx.get_parameter_source(param.name) in GIVEN
    }


@contextmanager
def named_as_given(ctx: click.Context) -> Iterator[None]:
    """Report errors in options by their origin: an error that begins with an option names the file and the key instead,
    if the value is from the file."""
    try:
        yield
    except CommandError as error:
        found = re.match(r"--([a-z-]+)(?=[ :])", str(error))
        if found is None or FILE not in ctx.meta:
            raise
        named = [param.name for param in ctx.command.params if found[0] in param.opts and param.name]
        if not named or ctx.get_parameter_source(named[0]) is not ParameterSource.DEFAULT_MAP:
            raise
        kind = UsageConflict if isinstance(error, UsageConflict) else CommandError
        raise kind(f"{ctx.meta[FILE]}: {found[1]}{str(error)[found.end() :]}") from error
