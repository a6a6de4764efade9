"""The page of a trace as a picture, light and dark: a push by brz over files, and the same as one request."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from chromium import Browser, Unavailable

from bench import options
from bench.palette import with_palette
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Workspace, run, serving

WIDTH, HEIGHT = 1000, 1040
"""Pixels."""

COMMIT = "echo {0} > f{0}; brz add -q; brz commit -q -m {0}"


@click.command()
@options.quantity("--rtt", options.TIME, "100ms", "Round-trip time of the link.")
@click.option("--write", type=click.Path(path_type=Path, file_okay=False), default=Path("doc"), show_default=True)
def command(rtt: float, write: Path) -> None:
    """Pictures of the page of a trace, light and dark: a push by brz over VFS beside one by RPC. Needs Chromium.

    \b
    bench pictures
    bench pictures --rtt 1s --write /tmp
    """
    with Workspace("pictures") as work:
        page = _pushes(work, rtt)
        folder = work.folder / "browser"
        folder.mkdir()
        try:
            opened = Browser(folder)
        except Unavailable as why:
            raise CommandError(str(why)) from None
        with opened as browser:
            for scheme in ("light", "dark"):
                browser.open(page, width=WIDTH, height=HEIGHT, scheme=scheme)
                target = write / f"trace-{scheme}.png"
                target.write_bytes(with_palette(browser.picture()))
                click.echo(f"{target}: {target.stat().st_size} B")
            if browser.problems:
                raise CommandError(f"the page has problems: {'; '.join(browser.problems)}")


def _pushes(work: Workspace, rtt: float) -> Path:
    """The page of the two pushes."""
    environment = work.environment("user")
    served = work.folder / "served"
    served.mkdir()
    server = work.start("hpss", served, partial(_serving, served))
    proxy = work.enter(Proxy(rtt, server.address))
    run(["smartserver", "setup", "brz"], None, environment)
    run(["brz", "whoami", "A <a@example.org>"], None, environment)
    branch = work.folder / "branch"
    run(["brz", "init", "-q", str(branch)], None, environment)
    for number in range(3):
        run(["sh", "-e", "-c", COMMIT.format(number)], branch, environment)
    trace, page = work.folder / "trace", work.folder / "trace.html"
    for scheme in ("hpss+vfs", "hpss"):
        url = server.url(scheme, proxy.port).replace("hpss", scheme, 1)
        run(["smartserver", "trace", "run", "-o", str(trace), "--", "brz", "push", "-q", url], branch, environment)
    run(["smartserver", "trace", "show", "--html", "-o", str(page), str(trace)], None, environment)
    return page


def _serving(served: Path, host: str, port: int) -> list[str]:
    return [*serving(served, host, port), "--allow-vfs"]
