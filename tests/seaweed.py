"""Another S3 store, SeaweedFS in one process, with the interface of `versitygw`: `make engine-suite` runs tests on it.

Its wheel is made by others than its project. Telemetry is off.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Self

from versitygw import KEYS

VARIABLE = "TEST_SEAWEED"
"""Names the program."""
PATIENCE = 60.0


def _free_ports(count: int) -> list[int]:
    """Ports where nobody listens, nor at those 10,000 above, which it uses too."""
    found: list[int] = []
    for port in range(21000 + os.getpid() % 10000, 45000):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for each in (port, port + 10000):
                held.enter_context(socket.create_server(("127.0.0.1", each)))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


class Process:
    """The one process of it."""

    def __init__(self, folder: Path) -> None:
        master, volume, self._filer, s3 = _free_ports(4)
        self.endpoint = f"http://127.0.0.1:{s3}"
        key, secret = KEYS.values()
        keys = {"name": "test", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [keys]}))
        (folder / "data").mkdir()
        self._command = [
            os.environ[VARIABLE], "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}/data",
            "-master.telemetry=false", "-master.raftHashicorp", "-master.electionTimeout=1s",
            "-master.heartbeatInterval=200ms", f"-master.port={master}", f"-volume.port={volume}", "-volume.max=0",
            "-master.volumeSizeLimitMB=16",
            "-volume.preStopSeconds=0", "-filer", f"-filer.port={self._filer}", f"-filer.localSocket={folder}/f.sock",
            "-s3", f"-s3.port={s3}", f"-s3.config={folder}/s3.json", "-s3.iam=false", "-s3.port.iceberg=0",
            "-s3.port.lance=0", f"-s3.localSocket={folder}/s.sock",
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, and wait until it stores something."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=5).close()
                self.make_folder("buckets/ready")
                return
            assert self.process.poll() is None, "it ended"
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.1)

    def make_folder(self, path: str) -> None:
        """Make a folder of the files behind it; one in `buckets` is a bucket."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._filer}/{path}/", method="POST")
        urllib.request.urlopen(request, timeout=5).close()

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()


class Seaweed:
    """The store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self.gateways = [Process(self._folder)] * 2
        return self

    def __exit__(self, *_: object) -> None:
        self.gateways[0].kill()

    def bucket(self) -> str:
        """The name of a new one."""
        name = f"bucket{next(self._numbers)}"
        self.gateways[0].make_folder(f"buckets/{name}")
        return name
