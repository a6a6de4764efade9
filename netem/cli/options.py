"""The options that several commands share, each declared once, and the parsers of their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from netem.effects import EFFECTS, parse_effect
from netem.units import parse_rate, parse_time

_T = TypeVar("_T")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    epilog: str,
    usage: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command without options and return its parser. `run` runs the command and returns its exit status."""
    made = commands.add_parser(
        name, help=summary, description=description, epilog=epilog, usage=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    made.set_defaults(run=run)
    return made


def argument(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return `parse` as a type for argparse, which shows the message of its `ValueError` to the user."""

    def parsed(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `:4001` (this machine), `example.org:9418`, `[::1]:4001`."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address; write HOST:PORT or :PORT, PORT from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not an address; write an IPv6 host in brackets: [{host}]:{port}")
    return host or "127.0.0.1", int(port)


def parse_server(text: str) -> tuple[str, int]:
    """Return host and port of a server, as `parse_address` does; the port must not be 0."""
    host, port = parse_address(text)
    if not port:
        raise ValueError(f"{text!r} is not an address of a server; PORT is from 1 to 65535")
    return host, port


def add_link(parser: argparse.ArgumentParser, *, rate: str) -> None:
    """Add the options that describe a link. `rate`: the help of `--rate`."""
    parser.add_argument(
        "--rtt", required=True, type=argument(parse_time), metavar="TIME", help="round trip, e.g. 1000ms"
    )
    parser.add_argument("--rate", type=argument(parse_rate), metavar="RATE", help=rate)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that happens by chance (default 0)")
    effects = ", ".join(f"{name}:{effect.arguments}" for name, effect in sorted(EFFECTS.items()))
    for direction, whose in (("up", "client"), ("down", "server")):
        parser.add_argument(
            f"--{direction}", type=argument(parse_effect), action="append", default=[], metavar="EFFECT",
            help=f"do this to what the {whose} sends; may be repeated: {effects}",
        )  # fmt: skip


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add `--to`, the address of the server behind a proxy."""
    parser.add_argument(
        "--to", required=True, type=argument(parse_server), metavar="HOST:PORT",
        help="the server; without host 127.0.0.1",
    )  # fmt: skip


def add_listen(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add `--listen`, the address on which a proxy listens. The option is required if there is no `default`."""
    told = "" if default is None else f" (default: {default})"
    parser.add_argument(
        "--listen", required=default is None, type=argument(parse_address), default=default, metavar="HOST:PORT",
        help=f"where the proxy listens; without host on 127.0.0.1, port 0: any free one{told}",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option `--json`. `what`: the end of its help text, which says what is printed."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")
