"""`smartserver tune`: estimate the best size of a server's caches from its requests."""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict

import click

from smartserver.cli.errors import CommandError
from smartserver.store.caches import Size, best

TIMEOUT = 10.0
"""Timeout in seconds for the metrics page."""

_LINE = re.compile(r'smartserver_cache_(would_hit|would_find|limit)\{cache="(\w+)"(?:,size="(\d+)")?\} (\S+)')


@click.command(short_help="Show what other sizes of a server's caches would find.")
@click.argument("url", metavar="URL")
def command(url: str) -> None:
    """Print how much caches of other sizes would have found for the requests of a running server, and advise a size.

    URL is the address of the server's metrics (`serve --metrics`), which only this machine can read by default. The
    estimate follows one value in 16, and older requests count less. With --workers, the hits are the sum of all
    workers; the sizes are those of each.

    \b
    smartserver serve /srv/code --metrics 127.0.0.1:9155
    smartserver tune http://127.0.0.1:9155
    """
    page = _page(url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics")
    limits: dict[str, int] = {}
    hits: dict[str, dict[int, int]] = defaultdict(dict)
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for name, cache, size, value in _LINE.findall(page):
        if name == "limit":
            limits[cache] = int(float(value))
        else:
            (hits if name == "would_hit" else found)[cache][int(size)] = int(float(value))
    if not limits:
        raise CommandError(f"{url} has no metrics of smartserver's caches")
    for cache, limit in sorted(limits.items()):
        sizes = [Size(size, hits[cache][size], found[cache][size]) for size in sorted(found[cache])]
        _show(cache, limit, sizes)


def _page(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"{url} is not a URL of metrics: use http://HOST:PORT, which `serve --metrics` prints")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as page:
            return str(page.read().decode("utf-8", "replace"))
    except (OSError, ValueError) as error:  # The reason of a URLError is usually an OSError.
        reason = getattr(error, "reason", error)
        raise CommandError(f"{url}: {getattr(reason, 'strerror', None) or reason}") from None


def _show(cache: str, limit: int, sizes: list[Size]) -> None:
    click.echo(f"{cache}: {_megabytes(limit)} now")
    if not sizes or not sizes[-1].found:
        click.echo("  nothing was asked for twice yet")
        return
    click.echo(f"  {'size':>10} {'hits':>12} {'bytes found':>14}")
    for size in sizes[: next(at for at, each in enumerate(sizes, 1) if each.hits == sizes[-1].hits)]:
        click.echo(f"  {_megabytes(size.size):>10} {size.hits:>12,} {_megabytes(size.found):>14}")
    click.echo(f"  {_megabytes(best(sizes, sizes[-1].size))} would find nearly as much as any larger one")


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"
