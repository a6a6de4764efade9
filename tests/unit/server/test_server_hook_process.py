"""server.hook_process: the output of a command is bounded, and a command ends when it ends."""

from __future__ import annotations

import os
import signal
import tracemalloc
from pathlib import Path

from smartserver.server.hook_process import MOST_SAID, Ended, run_command


def run(place: Path, text: str) -> Ended:
    return run_command(["/bin/sh", "-c", text], {}, {"PATH": os.defpath}, place, 60)


def test_the_beginning_of_its_output_is_told(tmp_path: Path) -> None:
    """The rest is counted, and neither in memory nor on the disk."""
    size = 20_000_000
    tracemalloc.start()
    try:
        ended = run(tmp_path, f"head -c {size} /dev/zero | tr '\\0' x; ls; exit 1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ended.why == f"{'x' * MOST_SAID}; and {size + 3 - MOST_SAID:,} bytes more"
    assert peak < 1_000_000
    assert os.listdir(tmp_path) == ["in"]  # As the command saw, which took three bytes of its output.


def test_one_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    assert run(tmp_path, "echo one; echo; exec >&- 2>&-; sleep 0.1; touch later; exit 3").why == "one"
    assert (tmp_path / "later").exists()


def test_a_process_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    """It has the output open."""
    apart = "setsid sh -c 'touch gone; exec sleep 1000' & while ! [ -e gone ]; do sleep 0.01; done"
    ended = run(tmp_path, f"{apart}; echo $!; exit 1")
    os.kill(int(ended.why), signal.SIGKILL)
