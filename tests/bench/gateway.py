"""Stock git through the gateway, beside `git http-backend` on a bare clone: processor time of server and client."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from bench import options
from bench.git_histories import copy
from bench.process import MODULES, cpu_of, measure
from bench.report import Progress, Report
from bench.servers import Workspace, free_port, run
from smartserver.cli.errors import one_line
from smartserver.cli.serve_gateway import TIDY_AFTER

CLONES = {"warm": 1.1, "cold": 2.3}
"""The bar of each kind of clone, in git's processor time."""

NOTHING = 0.02
"""Seconds of processor time that a fetch of nothing may take beyond git's."""

SETTLED = 3.0
"""Seconds without work after which a server has finished its work after an answer."""


PIECE = 256 << 10


class Backend(BaseHTTPRequestHandler):
    """Runs git's CGI program for each request (http-backend(1))."""

    protocol_version = "HTTP/1.1"
    root = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        length = self.headers.get("Content-Length", "0")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": length,
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(length))
        pipe = subprocess.PIPE
        # Without a buffer, in which a part of the content would stay behind the fields.
        with subprocess.Popen(["git", "http-backend"], stdin=pipe, stdout=pipe, bufsize=0, env=environment) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(body)
            process.stdin.close()
            status, fields = b"200 OK", []
            while line := process.stdout.readline().strip():
                if line.lower().startswith(b"status:"):
                    status = line.partition(b":")[2].strip()
                else:
                    fields.append(line)
            fields.append(b"Transfer-Encoding: chunked")
            self.wfile.write(b"HTTP/1.1 " + status + b"\r\n" + b"\r\n".join(fields) + b"\r\n\r\n")
            while part := os.read(process.stdout.fileno(), PIECE):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # As it is called.
        """Nobody reads it."""


class Side:
    """One server, and a client of it."""

    def __init__(self, folder: Path, url: str, process: int, environment: Mapping[str, str]) -> None:
        self._clone = folder / "clone.git"
        self._url, self._process, self._environment = url, process, environment

    def cost(self, *words: str, folder: Path | None = None) -> float:
        """Run a command of git, and return the processor seconds of the command and of the server."""
        before = cpu_of(self._process)
        client, _ = measure(["git", *words], folder, self._environment)
        return client.cpu + cpu_of(self._process) - before

    def clone(self) -> float:
        shutil.rmtree(self._clone, ignore_errors=True)
        return self.cost("clone", "--quiet", "--bare", self._url, str(self._clone))

    def fetch(self) -> float:
        return self.cost("fetch", "--quiet", self._url, "HEAD", folder=self._clone)

    def settle(self) -> None:
        """Wait until the server is idle."""
        time.sleep(TIDY_AFTER)
        while True:
            before = cpu_of(self._process)
            time.sleep(SETTLED)
            if cpu_of(self._process) - before < SETTLED / 50:
                return


@click.command()
@options.path()
@options.number("-n count", 5, "Runs of each; the one that costs the least counts.")
def command(path: Path, count: int) -> None:
    """Clone PATH with stock git, and fetch nothing: through the gateway, and from `git http-backend`.

    \b
    bench gateway history.bundle
    """
    progress = Progress()
    with Workspace("bench") as work, one_line():
        environment = work.environment("gateway", {"gc.auto": "0", "protocol.hpss.allow": "always"})
        served, bare, cache = work.folder / "served", work.folder / "bare", work.folder / "cache"
        served.mkdir()
        bare.mkdir()
        progress.step("copying the history")
        copy(path, bare / "project", environment)
        run(["git", "repack", "-a", "-d", "--quiet"], bare / "project", environment)
        ports = [free_port() for _ in range(3)]
        program = [sys.executable, "-m", "smartserver.cli.main", "serve", str(served), "--anonymous", "write"]
        program += ["--listen", f"127.0.0.1:{ports[0]}", "--http", f"127.0.0.1:{ports[1]}", "--cache-dir", str(cache)]
        ours = Side(work.folder, f"http://127.0.0.1:{ports[1]}/project", work.serve(program, ports[1]), environment)
        backend = [sys.executable, "-m", "bench.gateway", str(bare), str(ports[2])]
        process = work.serve(backend, ports[2], {**environment, **MODULES})
        git = Side(work.folder, f"http://127.0.0.1:{ports[2]}/project", process, environment)
        push = ["git", "push", "--quiet", "--mirror", f"hpss://127.0.0.1:{ports[0]}/project"]
        run(push, bare / "project", environment)
        ours.settle()

        def cold() -> float:
            shutil.rmtree(cache, ignore_errors=True)
            taken = ours.clone()
            ours.settle()
            return taken

        rows: Mapping[str, Callable[[], float]] = {
            "git": git.clone, "cold": cold, "warm": ours.clone, "git, nothing": git.fetch, "nothing": ours.fetch,
        }  # fmt: skip
        costs = dict.fromkeys(rows, math.inf)
        for number in range(count):  # In turn: what else runs on this machine meets all of them.
            progress.step(f"run {number + 1} of {count}")
            for name, act in rows.items():
                costs[name] = min(costs[name], act())
        report = Report("Processor time of server and client", beside="git http-backend")
        for name, bar in CLONES.items():
            times = costs[name] / costs["git"]
            report.both(f"clone, {name}", _shown, costs[name], costs["git"], f"{bar} times", times <= bar)
            report.add("", f"{times:.2f} times")
        more = costs["nothing"] - costs["git, nothing"]
        limit = f"{1000 * NOTHING:.0f} ms more"
        report.both("fetch of nothing", _shown, costs["nothing"], costs["git, nothing"], limit, more <= NOTHING)
        report.add(run(["git", "version"], None, environment).strip(), "")
        report.finish()


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


if __name__ == "__main__":  # The server beside which the gateway is measured.
    Backend.root = sys.argv[1]
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Backend).serve_forever()
