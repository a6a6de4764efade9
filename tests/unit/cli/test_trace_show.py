"""`smartserver trace show`: what it writes a trace as, and where."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from traces import push, read

from smartserver.cli.main import group
from smartserver.trace.events import encode
from smartserver.trace.html import html
from smartserver.trace.perfetto import perfetto
from smartserver.trace.report import lines


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "slow.trace"
    path.write_bytes(b"".join(map(encode, push())))
    return path


def show(*words: object) -> Result:
    return CliRunner().invoke(group, ["trace", "show", *map(str, words)])


TEXT = "".join(f"{line}\n" for line in lines(read(push())[0])).encode()
VIEWS = {
    "--text": TEXT,
    "--html": html(read(push())),
    "--perfetto": perfetto(read(push())),
}


@pytest.mark.parametrize("option", VIEWS)
def test_each_view_on_stdout_and_in_a_file_for_the_user_alone(trace: Path, tmp_path: Path, option: str) -> None:
    shown = show(trace, option)
    assert (shown.exit_code, shown.stdout_bytes) == (0, VIEWS[option])
    output = tmp_path / "out"
    assert show(option, "-o", output, trace).stdout_bytes == b""
    assert output.read_bytes() == VIEWS[option]
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


def test_a_trace_with_an_id_that_is_none_is_refused(trace: Path) -> None:
    trace.write_bytes(b"".join(map(encode, push(trace="</script>"))))
    assert "is not an event: Expected `str` matching regex" in str(show(trace).exception)
