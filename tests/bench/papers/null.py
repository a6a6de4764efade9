"""The speed of a server towards clients that keep nothing: MB/s of texts of an export, by clients, workers and
compression; and our serialisation beside Python's own.

A null client reads the body as it arrives and skips each text, as the one of 2010 did. Each client is a process.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench import options
from bench.papers import linear
from bench.papers.results import Results, with_options
from bench.process import Watch
from bench.report import median, table
from bench.servers import Server, Workspace, serving

CLIENTS: Final = (1, 2, 4)
WORKERS: Final = (1, 2)
LEVELS: Final = ("0", "3")
WAYS: Final = ("msgspec", "json", "pickle")
LENGTH: Final = 5000
TIMES: Final = 10
"""The number of reads of a client that count."""

NULL: Final = """
import sys, time
from smartserver.cli.session import repository_on_server
from smartserver.records.browse import ContentStream, TreeSelector, encode_selector
url, times = sys.argv[1], int(sys.argv[2])
selector = encode_selector(TreeSelector("", deep=True, texts=True))
with repository_on_server(url, frozenset()) as remote:
    for number in range(times + 1):
        if number == 1:
            print("ready", flush=True)
            sys.stdin.readline()
        for entry in ContentStream(remote.read(selector, refs=[]).body).entries(texts=True):
            pass
"""
"""The program of a client. Its first read warms the server up."""


class Message(msgspec.Struct, array_like=True):
    """A message of the shape of an answer."""

    status: int
    path: str
    ids: list[bytes]
    attributes: dict[str, bytes]


def serialised(way: str) -> list[float]:
    """Return the microseconds that a message with twenty ids takes to encode and decode, and its bytes."""
    message = Message(1, "project/name", [bytes(20)] * 20, {"one": b"value", "other": bytes(40)})
    plain = [1, "project/name", ["00" * 20] * 20, {"one": "value", "other": "00" * 40}]
    decoder, encoder = msgspec.msgpack.Decoder(Message), msgspec.msgpack.Encoder()
    ways: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
        "msgspec": (partial(encoder.encode, message), lambda data: decoder.decode(data)),
        "json": (partial(json.dumps, plain), json.loads),
        "pickle": (partial(pickle.dumps, message), lambda data: pickle.loads(data)),
    }
    encode, decode = ways[way]
    begin = time.perf_counter()
    for _ in range(20_000):
        decode(encode())
    return [(time.perf_counter() - begin) / 20_000 * 1e6, len(encode())]


def throughput(server: Server, clients: int, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds in which all clients read the tree `TIMES` times, and the server's processor seconds."""
    words = [sys.executable, "-c", NULL, server.url("wide"), str(TIMES)]
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        running = [
            stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, text=True))
            for _ in range(clients)
        ]
        streams = [(each.stdin, each.stdout) for each in running if each.stdin is not None and each.stdout is not None]
        for _, output in streams:
            assert output.readline() == "ready\n"
        with Watch(server.pid) as watch:
            for asked, _ in streams:
                asked.close()
            for each in running:
                assert each.wait() == 0
    return watch.cost.seconds, watch.cost.cpu


def measured(served: Path, level: str, workers: int, repeat: int, files: int) -> Iterator[tuple[int, list[float]]]:
    """Yield, for each number of clients, MB/s and the server's share of a processor."""
    more = ("--compression", level, "--workers", str(workers), "--memory-cache-size", "256")
    with Workspace("null") as own:
        server = own.start("hpss", served, lambda host, port: serving(served, host, port, *more))
        for clients in CLIENTS:
            found = [throughput(server, clients, own.environment("bench")) for _ in range(repeat)]
            took, cpu = map(median, zip(*found, strict=True))
            yield clients, [clients * TIMES * files * LENGTH / took / 1e6, cpu / took]


@click.command()
@options.number("-n files", 3000, f"Of the tree, {LENGTH:,} bytes each.")
@options.number("--repeat", 3, "Runs of each; the median counts.")
@with_options
def command(files: int, repeat: int, folder: Path, write: bool) -> None:
    """Measure the speed of a server towards null clients: MB/s of the texts of an export, hot, for 1, 2 and 4 clients
    at once, on 1 and 2 workers, with and without compression, and the server's processor; and our serialisation beside
    json and pickle.

    \b
    bench papers null
    """
    results = Results(folder)
    rows = []
    with Workspace("bench") as work:
        served = work.folder / "served"
        for level, workers in product(LEVELS, WORKERS):
            cells = {clients: f"null, {level}, {workers}, {clients}" for clients in CLIENTS}
            if any(cell not in results.cells for cell in cells.values()):
                results.progress.step(f"compression {level}, {workers} workers")
                if not served.exists():
                    served.mkdir()
                    linear.to_ours(linear.wide_tree(files, LENGTH), served / "wide", work)
                for clients, values in measured(served, level, workers, repeat, files):
                    results.keep(cells[clients], values)
            found = [results.cells[cell].values for cell in cells.values()]
            shown = [f"{rate:,.0f} ({share:.0%})" for rate, share in found]
            rows.append([f"compression {level}, {workers} workers", *shown])
    ways = {way: results.find(f"null, message, {way}", partial(serialised, way)) for way in WAYS}
    head = ["MB/s (server's processor)", *(f"{clients} clients" for clients in CLIENTS)]
    shown = [f"{way} {took:.1f} us, {size:.0f} bytes" for way, (took, size) in ways.items()]
    text = f"{table(head, rows)}\n\nA message of twenty ids there and back: {'; '.join(shown)}."
    results.show("null", text, write=write)
