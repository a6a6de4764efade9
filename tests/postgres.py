"""`Postgres`: a real PostgreSQL on loopback for tests; it runs as `nobody` where the tests run as root.

with Postgres() as server:
    psycopg.connect(server.address)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from needs import program

PATIENCE = 30
SETTINGS = {"listen_addresses": "127.0.0.1", "shared_buffers": "16MB", "log_min_messages": "fatal"}


class Postgres:
    """The server, as a context; it begins with an empty database."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            Missing: there is no PostgreSQL on this machine.
        """
        if os.geteuid() == 0:
            shutil.chown(self._folder, "nobody")
        self._run([program("initdb"), "--auth=trust", "--username=postgres", "--no-sync", str(self._folder / "data")])
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def database(self) -> str:
        """The address of a new, empty one."""
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            name = f"d{next(self._numbers)}"
            connection.execute(f"CREATE DATABASE {name}")
        return f"{self.address.rpartition('/')[0]}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [option for each in SETTINGS.items() for option in ("-c", "=".join(each))]
        folder = str(self._folder)
        command = [program("postgres"), "-D", f"{folder}/data", "-p", str(self.port), "-k", folder, *settings]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._as())
        import psycopg

        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.address, connect_timeout=1).close()
                return
            assert time.monotonic() < end, "PostgreSQL does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """End all its processes at once, so that it recovers when it is started again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)
            self._process = None

    def _run(self, command: Sequence[str]) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._as())

    def _as(self) -> dict[str, Any]:
        return {"user": "nobody", "group": "nogroup", "cwd": str(self._folder)} if os.geteuid() == 0 else {}
