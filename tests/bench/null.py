"""What a server gives clients that keep nothing: MB/s of texts of an export, by clients, workers and compression; and
our serialisation beside Python's own.

A null client reads the body as it comes and passes over each text, as the one of 2010 did. Each is a process.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench import linear, options
from bench.process import Watch
from bench.report import Report, median
from bench.servers import Workspace, run, serving
from smartserver.trace.text import size

CLIENTS: Final = (1, 2, 4)
WORKERS: Final = (1, 2)
LEVELS: Final = ("0", "3")
LENGTH: Final = 5000

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
"""The first read warms it up."""


class Message(msgspec.Struct, array_like=True):
    """Of the shape of an answer's."""

    status: int
    path: str
    ids: list[bytes]
    attributes: dict[str, bytes]


def serialised(report: Report) -> None:
    """How long a message takes that has twenty ids, there and back."""
    message = Message(1, "project/name", [bytes(20)] * 20, {"one": b"value", "other": bytes(40)})
    plain = [1, "project/name", ["00" * 20] * 20, {"one": "value", "other": "00" * 40}]
    decoder, encoder = msgspec.msgpack.Decoder(Message), msgspec.msgpack.Encoder()
    ways: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
        "msgspec": (partial(encoder.encode, message), lambda data: decoder.decode(data)),
        "json": (partial(json.dumps, plain), json.loads),
        "pickle": (partial(pickle.dumps, message), lambda data: pickle.loads(data)),
    }
    for name, (encode, decode) in ways.items():
        begin = time.perf_counter()
        for _ in range(20_000):
            decode(encode())
        report.add(
            f"a message there and back, {name}, {len(encode())} bytes",
            f"{(time.perf_counter() - begin) / 20_000 * 1e6:.1f} us",
        )


def throughput(url: str, clients: int, times: int, environment: dict[str, str]) -> float:
    """Seconds in which all clients have read the tree so often."""
    words = [sys.executable, "-c", NULL, url, str(times)]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, text=True) for _ in range(clients)]
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    begin = time.perf_counter()
    for each in running:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    for each in running:
        assert each.wait() == 0
        for stream in (each.stdin, each.stdout):
            assert stream is not None
            stream.close()
    return time.perf_counter() - begin


@click.command()
@options.number("-n files", 3000, f"Of the tree, {LENGTH:,} bytes each.")
@options.number("--repeat", 3, "Runs of each; the median counts.")
def command(files: int, repeat: int) -> None:
    """What a server gives null clients: MB/s of the texts of an export, hot, for 1, 2 and 4 clients at once, on 1 and 2
    workers, with and without compression, and the server's processor; and our serialisation beside json and pickle.

    \b
    bench null
    """
    with Workspace("bench") as work:
        environment = work.environment("bench") | {"SMARTSERVER_AGENT": "0"}
        source, served = work.folder / "source.git", work.folder / "served"
        served.mkdir()
        linear.write(source, environment, linear.wide_tree(files, LENGTH))
        stream = work.folder / "stream"
        stream.write_text(run(["git", "fast-export", "main"], source, environment))
        run(["smartserver", "fast-import", str(served / "wide"), str(stream)], source, environment)
        report = Report(f"{files:,} files, {size(files * LENGTH)}; null clients, medians of {repeat}", "server's CPU")
        times = 10
        for level in LEVELS:
            for workers in WORKERS:
                more = ("--compression", level, "--workers", str(workers), "--memory-cache-size", "256")
                with Workspace("null") as own:
                    server = own.start("hpss", Path(served), lambda host, port: serving(served, host, port, *more))  # noqa: B023
                    for clients in CLIENTS:
                        seconds, cpu = [], []
                        for _ in range(repeat):
                            with Watch(server.pid) as watch:
                                seconds.append(throughput(server.url("wide"), clients, times, environment))
                            cpu.append(watch.cost.cpu)
                        rate = clients * times * files * LENGTH / median(seconds) / 1e6
                        report.add(
                            f"compression {level}, {workers} workers, {clients} clients",
                            f"{rate:,.0f} MB/s",
                            f"{median(cpu) / median(seconds):.0%}",
                        )
        serialised(report)
    report.finish()
