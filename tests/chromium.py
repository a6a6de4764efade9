"""Chromium without a window and without a network, driven by its DevTools protocol over a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from needs import BROWSERS, find, require

PATIENCE = 60.0
"""Seconds after which the browser counts as stuck."""

READS, WRITES = 3, 4
"""The descriptors from which a browser reads requests and to which it writes answers and events."""

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
"""The numbers of keys that write no character."""


class Browser:
    """One page of a browser in a network namespace of its own, which cannot reach any host, this one included."""

    def __init__(self, folder: Path) -> None:
        """`folder`: an empty one for its files.

        Raises:
            Missing: there is no such browser here, or no network namespace for it.
        """
        require("Chromium", "network namespaces")
        program = next(filter(None, map(find, BROWSERS)))
        alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-current-user", "--net"]
        (folder / "home").mkdir()
        self._log = folder / "log"
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        self._requests, self._answers, self.process = _started(
            [*alone, program, *options, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"],
            {**os.environ, "HOME": str(folder / "home")},
            self._log,
        )
        self._came = b""
        self._events: list[dict[str, Any]] = []
        self._asked = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """The messages of the page's console."""

    def __enter__(self) -> Self:
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._requests)
        os.close(self._answers)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # Its own, in a session of theirs.
        self.process.wait(PATIENCE)

    def do(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._asked:
            self._events.append(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is loaded."""
        self.do("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        self.do("Page.navigate", url=path.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self._events):
            self._events.append(self._next())
        self._events.clear()

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str) -> tuple[float, float]:
        """Scroll an element into sight, and return the place of its middle."""
        box = self.value(
            "(each => { each.scrollIntoView({block: 'center'}); const box = each.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2] })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return box[0], box[1]

    def press(self, key: str) -> None:
        """Press a key and release it."""
        written = {"Enter": "\r"}.get(key, "" if key in KEYS else key)
        pressed = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, 0)}
        self.do("Input.dispatchKeyEvent", type="keyDown", text=written, **pressed)
        self.do("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def _next(self) -> dict[str, Any]:
        """Return the next message from the browser, and note the messages of the console."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._came:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._answers, 1 << 20) if ready else b""
            if not more:
                raise AssertionError(f"the browser is {'gone' if ready else 'stuck'}: {self._log.read_text()[-2000:]}")
            self._came += more
        line, _, self._came = self._came.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.problems.append(json.dumps(message["params"]))
        return message


def _started(
    command: Sequence[str], environment: dict[str, str], log: Path
) -> tuple[int, int, subprocess.Popen[bytes]]:
    """Start a browser, and return the descriptors of its requests and answers, and its process."""
    reads, requests = os.pipe()
    answers, writes = os.pipe()
    kept = [os.dup(each) for each in (reads, writes)]

    def at_their_places() -> None:
        lifted = [os.dup(each) for each in kept]  # Neither is at the other's place now.
        while min(lifted) <= WRITES:
            lifted = [os.dup(each) for each in lifted]
        os.dup2(lifted[0], READS)
        os.dup2(lifted[1], WRITES)

    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            preexec_fn=at_their_places, pass_fds=(READS, WRITES),
        )  # fmt: skip
    for each in (reads, writes, *kept):
        os.close(each)
    return requests, answers, process
