"""cli.git_remote, cli.git_remote_run: the program that git starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from smartserver.cli.interrupts import ENDING

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(*arguments: str, said: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "smartserver.cli.git_remote", *arguments],
        input=said,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], **environment},
        timeout=60,
    )


def test_a_url_is_utf_8_in_every_locale() -> None:
    """Decoded by the locale's encoding the URL would be invalid, or lead to another repository."""
    done = run("origin", "hpss://127.0.0.1:1/ü", **ASCII)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_folder_of_another_machine_is_named_in_utf_8(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor word; do :; done; printf "%s" "$word" > "$0.command"\n')
    ssh.chmod(0o755)
    done = run("origin", "hpss+ssh://host/ü/x", said="list\n", SMARTSERVER_SSH=str(ssh), **ASCII)
    assert done.returncode == 128
    assert (tmp_path / "ssh.command").read_text("utf-8") == "smartserver serve '/ü' --stdio"


@pytest.mark.parametrize(
    ("variables", "config", "expected"),
    [
        ({}, "", "GIT_SSH"),
        ({"GIT_SSH_COMMAND": ""}, "", "GIT_SSH"),
        ({}, "{} config", "config"),
        ({"GIT_CONFIG": "/dev/null"}, "{} config", "config"),
        ({"GIT_SSH_COMMAND": "X=2 {} 'a b'"}, "{} config", "a b"),
        ({"GIT_SSH_COMMAND": "{} variable", "SMARTSERVER_SSH": "{}"}, "", "-T"),
    ],
)
def test_the_ssh_of_gits_user(tmp_path: Path, variables: dict[str, str], config: str, expected: str) -> None:
    """Git itself chooses ssh in the same way; the command is for a shell."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nprintf "%s" "$1" > "${0%/*}/said"\n')
    other = tmp_path / "of-git-ssh"
    other.write_text(f"#!/bin/sh\nprintf GIT_SSH > {tmp_path}/said\n")
    for each in (ssh, other):
        each.chmod(0o755)
    given = {name: value.format(ssh) for name, value in variables.items()} | {"GIT_SSH": str(other)}
    if config:
        given |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.sshCommand"}
        given["GIT_CONFIG_VALUE_0"] = config.format(ssh)
    assert run("origin", "hpss+ssh://host/~/x", said="list\n", **given).returncode == 128
    assert (tmp_path / "said").read_text() == expected


def test_ssh_learns_nothing_of_the_repository(tmp_path: Path) -> None:
    """Git hides the repository from ssh, too: git may run on another repository there, or in a `ProxyCommand`."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nenv > {tmp_path}/said\n")
    ssh.chmod(0o755)
    of_git = {"GIT_PREFIX": "x/", "GIT_CONFIG_PARAMETERS": "'a.b'='c'", "GIT_INDEX_FILE": "/index"}
    run("origin", "hpss+ssh://host/~/x", said="list\n", GIT_SSH=str(ssh), GIT_SSH_VARIANT="ssh", **of_git)
    said = dict(line.split("=", 1) for line in (tmp_path / "said").read_text().splitlines())
    assert said["GIT_SSH_VARIANT"] == "ssh"
    assert not said.keys() & of_git.keys()


def test_a_wrong_url_is_one_line() -> None:
    done = run("origin", "hpss://")
    assert (done.returncode, done.stdout) == (128, "")
    assert done.stderr == "fatal: hpss: 'hpss://' is not a URL of a repository: it has no host\n"


@pytest.mark.long
@pytest.mark.parametrize("key", ["any", "SHA256:AAAA"])
@pytest.mark.parametrize("value", ["0", "false", ""])
def test_a_host_key_in_a_url_of_a_repository_is_refused(key: str, value: str) -> None:
    """Git tells by this variable whether the user gave the URL. A repository's URL could disable host key checks."""
    url = f"hpss+sftp://127.0.0.1:1/srv/x?host-key={key}"
    done = run("origin", url, GIT_PROTOCOL_FROM_USER=value)
    assert (done.returncode, done.stdout) == (128, "")
    why = f"a URL from a repository (.gitmodules) must not contain ?host-key={key}: "
    assert done.stderr.startswith(f"fatal: hpss: {url!r} is not a URL of a repository: {why}")
    assert "log in there once with ssh" in done.stderr
    assert run("origin", url, GIT_PROTOCOL_FROM_USER="1").returncode == 0  # Nothing was asked.
    assert run("origin", url.partition("?")[0], GIT_PROTOCOL_FROM_USER=value).returncode == 0


def started(command: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a remote program that has answered, and waits for more input from git."""
    process = subprocess.Popen(
        [*command, sys.executable, "-m", "smartserver.cli.git_remote", "origin", "hpss://127.0.0.1:1/x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]},
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"capabilities\n")
    assert process.stdout.readline() == b"fetch\n"
    return process


@pytest.mark.parametrize("number", ENDING)
def test_what_ends_a_command_is_an_interrupt(number: signal.Signals) -> None:
    """`tests/interop` checks the files that are left then."""
    with started() as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")


SERVE = """
import os, signal, time
from smartserver.cli import git_remote_run

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def tidy():
    time.sleep(0.05)
    for number in {later}:
        os.kill(os.getpid(), number)
    os.write(1, b"tidied\\n")

def run(remote, url, environment, at_end, parent, holder, run_program):
    at_end.callback(tidy)
    {run}

git_remote_run.run = run
os._exit(git_remote_run.serve("origin", "hpss://127.0.0.1:1/x", {{}}, parent=1))
"""


def served(run: str, later: tuple[signal.Signals, ...] = ()) -> tuple[int, str, str]:
    """Return status, output and errors of a command that runs `run`, and gets signals while it cleans up."""
    script = SERVE.format(run=run, later=[int(number) for number in later])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_after_what_should_not_be_raised_it_tidies_up_too() -> None:
    status, said, why = served("raise MemoryError")
    assert (status, said) == (1, "tidied\n")
    assert why.endswith("MemoryError\n")
