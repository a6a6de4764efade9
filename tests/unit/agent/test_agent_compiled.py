"""agent.compiled, agent.reading: the program in C, which hands over what Python's hands over, or runs that."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import RUN_HERE, Zygote

import smartserver
from smartserver.agent.compiled import CODE, OPTIONS, OURS, PROGRAMS, compile_to, installed
from smartserver.agent.reading import NAME, READING, is_for_agent
from smartserver.agent.thin import ACCEPTED, ENDED
from smartserver.cli.main import COMMANDS

pytestmark = pytest.mark.sockets

URL = b"hpss://127.0.0.1:1/x"

PYTHON = [sys.executable, "-P", "-c", CODE, "git-remote-hpss"]

HANDED_OVER = 7


class Ending(Zygote):
    """A zygote that takes all commands and ends them at once."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.streams: list[list[tuple[str, int]]] = []
        """Each of a command's standard streams, and the way it was opened."""
        super().__init__(environment, self._end)

    def _end(self, connection: socket.socket) -> None:
        connection.send(ACCEPTED)
        begun, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
        self.streams.append([_stream(each) for each in descriptors])
        connection.send(ENDED + bytes([HANDED_OVER]) if begun else b"")


def _stream(descriptor: int) -> tuple[str, int]:
    name, mode = os.readlink(f"/proc/self/fd/{descriptor}"), fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    os.close(descriptor)
    return name, mode


@pytest.fixture
def zygote(environment: dict[str, str]) -> Iterator[Ending]:
    with contextlib.closing(Ending(environment)) as made:
        yield made


def run(words: list[str], environment: dict[bytes, bytes], url: bytes = URL, folder: str = "/") -> int:
    done = subprocess.run(
        [*words, "origin", url], env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=folder
    )
    return done.returncode


def encoded(environment: dict[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


BOTH = {
    "nothing": {},
    "a home": {b"HOME": b"/root", b"PATH": b"/usr/bin"},
    "C": {b"LANG": b"C"},
    "POSIX": {b"LANG": b"POSIX", b"LC_TIME": b"C"},
    "C.UTF-8": {b"LANG": b"C.UTF-8", b"LANGUAGE": b"de:en"},
    "all of C": {b"LC_ALL": b"C"},
    "all of POSIX": {b"LC_ALL": b"POSIX"},
    "all of nothing": {b"LC_ALL": b"", b"LC_CTYPE": b"C"},
    "no such locale": {b"LANG": b"xx_YY.UTF-8", b"LC_CTYPE": b"nowhere"},
    "all of no such locale": {b"LC_ALL": b"xx_YY.UTF-8"},
    "what Python reads": {b"PYTHONUTF8": b"0", b"PYTHONIOENCODING": b"latin-1", b"PYTHONUNBUFFERED": b"1"},
    "any bytes": {b"A": b"\xff\n\x01=", b"B\xfe \n": b"", b"LC_X": b"a\nb", b"a": b"1", b"A-B": b"2", b"A B": b"3"},
    "many": {b"N%d" % number: b"x" * 150 for number in range(800)},
    "traces": {b"GIT_TRACE": b"1", b"GIT_TRACE2": b"002", b"GIT_TRACE_PACKET": b"/nowhere", b"GIT_TRACE_X": b""},
    "an agent": {b"SMARTSERVER_AGENT": b"00"},
    "perhaps an agent": {b"SMARTSERVER_AGENT": b""},
    "an empty preload": {b"LD_PRELOAD": b""},
}

NEITHER = {
    "false": {b"SMARTSERVER_AGENT": b"False"},
    "no": {b"SMARTSERVER_AGENT": b"No"},
    "off": {b"SMARTSERVER_AGENT": b"OFF"},
    "a trace": {b"GIT_TRACE": b"3"},
    "a trace of two digits": {b"GIT_TRACE2_EVENT": b"0010"},
    "an audit": {b"LD_AUDIT": b"nothing.so"},
    "a preload": {b"LD_PRELOAD": b"nothing.so"},
}


@pytest.mark.parametrize("more", BOTH.values(), ids=BOTH)
def test_it_hands_over_the_same(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, more: dict[bytes, bytes]
) -> None:
    variables = encoded(environment) | more
    assert run([compiled_alone], variables) == HANDED_OVER
    assert run(PYTHON, variables) == HANDED_OVER
    in_c, python = zygote.packets
    assert in_c[:6] == python[:6]
    assert sorted(in_c[6:]) == sorted(python[6:])


@pytest.mark.parametrize("more", NEITHER.values(), ids=NEITHER)
def test_it_hands_over_nothing_else(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, more: dict[bytes, bytes]
) -> None:
    variables = encoded(environment) | more
    assert run([compiled_alone], variables) == RUN_HERE
    assert run(PYTHON, variables) == 0
    assert zygote.packets == []


@pytest.mark.parametrize("name", [b"PYTHONPATH", b"PYTHONHOME", b"PYTHONCOERCECLOCALE"])
def test_where_python_may_be_another_it_hands_over_nothing(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, name: bytes
) -> None:
    """The program in its place may not start there. This one runs its own Python."""
    assert run([compiled_alone], encoded(environment) | {name: b"/nowhere"}) == RUN_HERE
    assert zygote.packets == []


@pytest.mark.parametrize(("url", "expected"), [
    (b"HPSS://127.0.0.1:1/x", HANDED_OVER), (b"hpss+TLS://h/\xff", HANDED_OVER),
    (b"hpss+ssh://h/" + b"x" * 9000, HANDED_OVER),
    (b"hpss+sftp://h/x", RUN_HERE), (b"hpss+vfs://h/x", RUN_HERE), (b"hpss:/", RUN_HERE), (b"", RUN_HERE),
])  # fmt: skip
def test_the_urls(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, url: bytes, expected: int
) -> None:  # fmt: skip
    assert run([compiled_alone], encoded(environment), url) == expected
    assert [packet[3] for packet in zygote.packets] == [url] * (expected == HANDED_OVER)


@pytest.mark.parametrize("words", [[], ["x"], ["-h", "hpss://h/"], ["--help", "hpss://h/"], ["a", "hpss://h/", "b"]])
def test_other_words_go_to_python(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, words: list[str]
) -> None:
    done = subprocess.run([compiled_alone, *words], env=environment, check=False)
    assert done.returncode == RUN_HERE
    assert zygote.packets == []


def test_what_reads_is_a_command() -> None:
    assert set(READING) <= set(COMMANDS)


FOR_AGENT = [
    ["log", "-q", "hpss://h/"],
    ["-Dhpss", "-Dx", "cat", "HPSS+tls://h/\u00e9", "a b"],
    ["ls", *["x" * 1000] * 50, "hpss://h/"],
]

NOT_FOR_AGENT = [
    [],
    ["-Dhpss"],
    ["log"],
    ["logs", "hpss://h/"],
    ["push", "log", "hpss://h/"],
    ["--stats", "log", "hpss://h/"],
    ["-D", "hpss", "log", "hpss://h/"],
    ["hpss://h/", "log"],
    ["log", "hpss+ssh://h/"],
    ["log", "/hpss://h/"],
]


@pytest.mark.parametrize("words", [*FOR_AGENT, *NOT_FOR_AGENT])
def test_smartserver_hands_over_the_same(
    environment: dict[str, str], zygote: Ending, our_compiled: str, words: list[str]
) -> None:
    assert is_for_agent(words) is (words in FOR_AGENT)
    there = subprocess.run([our_compiled, *words], env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    here = "from smartserver.cli import entry, main; main.main = lambda: None; entry.main()"
    python = [sys.executable, "-P", "-c", here, *words]
    subprocess.run(python, env=environment, stdin=subprocess.DEVNULL, check=False)
    assert there == (HANDED_OVER if is_for_agent(words) else RUN_HERE)
    packets = [packet[: len(words) + 3] for packet in zygote.packets]
    expected = [b"%d" % os.getpid(), b"%d" % (len(words) + 1), NAME, *map(os.fsencode, words)]
    assert packets == [expected] * (2 * is_for_agent(words))


def test_a_relative_folder_of_sockets_is_none(environment: dict[str, str], zygote: Ending, compiled_alone: str) -> None:
    folder, name = os.path.split(environment["XDG_RUNTIME_DIR"])
    run([compiled_alone], encoded(environment) | {b"XDG_RUNTIME_DIR": os.fsencode(name)}, folder=folder)
    assert zygote.packets == []


@pytest.mark.parametrize("mode", [0o750, 0o701])
def test_a_folder_that_others_may_enter_is_none(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, mode: int
) -> None:
    os.chmod(f"{environment['XDG_RUNTIME_DIR']}/smartserver", mode)
    assert run([compiled_alone], encoded(environment)) == RUN_HERE
    assert zygote.packets == []


@pytest.mark.parametrize(
    ("closed", "numbers"), [("<&-", [0]), (">&-", [1]), ("2>&-", [2]), ("<&- >&- 2>&-", [0, 1, 2])]
)
def test_a_closed_stream_is_opened_first(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, closed: str, numbers: list[int]
) -> None:
    modes = [os.O_RDONLY, os.O_RDONLY, os.O_WRONLY]
    for program in ([compiled_alone], PYTHON):
        assert run(["/bin/sh", "-c", f'"$@" {closed}', "sh", *program], encoded(environment)) == HANDED_OVER
        assert [zygote.streams[-1][number] for number in numbers] == [(os.devnull, modes[number]) for number in numbers]


def test_where_a_file_has_changed_python_runs(
    environment: dict[str, str], zygote: Ending, compiled_alone: str, tmp_path: Path
) -> None:
    """Files change in an upgrade in place."""
    path = str(tmp_path / "program")
    changed = tmp_path / "changed"
    changed.touch()
    os.utime(changed, ns=(0, 1))
    code = f'-DCODE="import sys; sys.exit({RUN_HERE} if sys.argv[3:] else 0)"'
    files = f'-DFILES={{"{smartserver.__file__}", {os.stat(str(smartserver.__file__)).st_mtime_ns}LL}}'
    options = (*OPTIONS, "-UCODE", code, "-UFILES")
    compile_to([path], {**os.environ, "CC": "cc"}, (*options, f'{files}, {{"{changed}", 1LL}}'))
    assert run([path], encoded(environment)) == HANDED_OVER
    os.utime(changed, ns=(0, 2))
    assert run([path], encoded(environment)) == RUN_HERE
    changed.unlink()
    assert run([path], encoded(environment)) == RUN_HERE


def test_the_python_program_does_the_rest(compiled: Path) -> None:
    for program in PROGRAMS:
        done = subprocess.run([compiled / program, "--help"], capture_output=True, check=False)
        usage = b"Usage: smartserver [OPTIONS]" if program == OURS else b"usage: git-remote-hpss REMOTE URL"
        assert done.stdout.startswith(usage)
        assert done.returncode == 0
    assert subprocess.run([compiled / PROGRAMS[0]], capture_output=True, check=False).returncode == 2


def test_it_knows_where_it_lies(compiled: Path, tmp_path: Path) -> None:
    """The forced commands of keys name it so, whatever it was called by."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"
    (tmp_path / "access.toml").write_text(f'[keys]\na = ["{key}"]\n[[rules]]\nwho = ["a"]\npath = "**"\nmay = "read"\n')
    (tmp_path / "-c").touch()
    done = subprocess.run(
        [OURS, "access", "keys", "access.toml", "."],
        executable=compiled / OURS, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f'command="{compiled / OURS} serve {tmp_path} --stdio' in done.stdout


def test_what_pip_made_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those are found, for pip takes them away again."""
    record = tmp_path / "lib" / "smartserver-1.dist-info"
    record.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    names = [*PROGRAMS[:2], "git-remote-hpss+vfs", "pytest"]
    for name in names:
        (tmp_path / "bin" / name).touch()
    (record / "RECORD").write_text("".join(f"../bin/{name},,\n" for name in [*names, PROGRAMS[2]]))
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: smartserver\nVersion: 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    assert installed() == [str(tmp_path / "bin" / name) for name in PROGRAMS[:2]]
    monkeypatch.setattr(sys, "path", [])
    assert installed() == []
