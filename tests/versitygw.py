"""An S3 store of two gateways that share a folder: versitygw, which `make versitygw` builds."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Self

from needs import VERSITYGW, require

KEYS = {"AWS_ACCESS_KEY_ID": "smartkey", "AWS_SECRET_ACCESS_KEY": "smartsecret"}


def environment(endpoint: str) -> dict[str, str]:
    """The variables for a process that uses the store by one gateway."""
    return {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}


class Gateway:
    """One process of the store."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self.endpoint = f"http://{self._address}"
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [
            str(VERSITYGW),
            "--port",
            self._address,
            "--quiet",
            "--keep-alive",
            "--health",
            "/healthz",
            "posix",
            str(self._folder),
        ]
        variables = {**os.environ, "ROOT_ACCESS_KEY": "smartkey", "ROOT_SECRET_KEY": "smartsecret"}
        self.process = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL)
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=10):
                return
            assert self.process.poll() is None
            time.sleep(0.01)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()


class S3:
    """The store. A new bucket is a new folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        require("versitygw")
        self.gateways = [Gateway(self._folder) for _ in range(2)]
        return self

    def __exit__(self, *_: object) -> None:
        for gateway in self.gateways:
            gateway.kill()

    def bucket(self) -> str:
        """The name of a new one."""
        name = f"bucket{next(self._numbers)}"
        (self._folder / name).mkdir()
        return name
