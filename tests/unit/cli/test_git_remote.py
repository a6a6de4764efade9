"""cli.git_remote, cli.git_remote_run: the program that git starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from scripts import script

from smartserver.cli import git_remote_run
from smartserver.cli.interrupts import ENDING, Interrupts

REMOTE = (sys.executable, "-m", "smartserver.cli.git_remote")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(*arguments: str, said: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMOTE, *arguments],
        input=said, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], **environment},
        timeout=60,
    )  # fmt: skip


def test_a_url_is_utf_8_in_every_locale() -> None:
    """Decoded by the locale's encoding the URL would be invalid, or lead to another repository."""
    done = run("origin", "hpss://127.0.0.1:1/ü", **ASCII)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_folder_of_another_machine_is_named_in_utf_8(tmp_path: Path) -> None:
    ssh = script(tmp_path / "ssh", 'for word; do :; done; printf "%s" "$word" > "$0.command"')
    done = run("origin", "hpss+ssh://host/ü/x", said="list\n", SMARTSERVER_SSH=ssh, **ASCII)
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
    ssh = script(tmp_path / "ssh", 'printf "%s" "$1" > "${0%/*}/said"')
    other = script(tmp_path / "of-git-ssh", f"printf GIT_SSH > {tmp_path}/said")
    given = {name: value.format(ssh) for name, value in variables.items()} | {"GIT_SSH": other}
    if config:
        given |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.sshCommand"}
        given["GIT_CONFIG_VALUE_0"] = config.format(ssh)
    assert run("origin", "hpss+ssh://host/~/x", said="list\n", **given).returncode == 128
    assert (tmp_path / "said").read_text() == expected


def test_ssh_learns_nothing_of_the_repository(tmp_path: Path) -> None:
    """Git hides the repository from ssh, too: git may run on another repository there, or in a `ProxyCommand`."""
    ssh = script(tmp_path / "ssh", f"env > {tmp_path}/said")
    of_git = {"GIT_PREFIX": "x/", "GIT_CONFIG_PARAMETERS": "'a.b'='c'", "GIT_INDEX_FILE": "/index"}
    run("origin", "hpss+ssh://host/~/x", said="list\n", GIT_SSH=ssh, GIT_SSH_VARIANT="ssh", **of_git)
    said = dict(line.split("=", 1) for line in (tmp_path / "said").read_text().splitlines())
    assert said["GIT_SSH_VARIANT"] == "ssh"
    assert not said.keys() & of_git.keys()


@pytest.mark.long
@pytest.mark.parametrize(("key", "value"), [("any", "0"), ("SHA256:AAAA", "false"), ("any", "")])
def test_a_host_key_in_a_url_of_a_repository_is_refused(key: str, value: str) -> None:
    """Git tells by this variable whether the user gave the URL. A repository's URL could disable host key checks."""
    url = f"hpss+sftp://127.0.0.1:1/srv/x?host-key={key}"
    done = run("origin", url, GIT_PROTOCOL_FROM_USER=value)
    assert (done.returncode, done.stdout) == (128, "")
    why = f"a URL from a repository (.gitmodules) must not contain ?host-key={key}: "
    assert done.stderr.startswith(f"fatal: hpss: {url!r} is not a URL of a repository: {why}")
    assert "log in there once with ssh" in done.stderr
    assert done.stderr.count("\n") == 1
    assert run("origin", url, GIT_PROTOCOL_FROM_USER="1").returncode == 0  # Nothing was asked.
    assert run("origin", url.partition("?")[0], GIT_PROTOCOL_FROM_USER=value).returncode == 0


@pytest.mark.parametrize("number", ENDING)
def test_what_ends_a_command_is_an_interrupt(number: signal.Signals) -> None:
    """`tests/interop` checks the files that are left then."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*REMOTE, "origin", "hpss://127.0.0.1:1/x"],
        stdin=pipe, stdout=pipe, stderr=pipe, env={"PATH": os.environ["PATH"]}, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"capabilities\n")
        assert process.stdout.readline() == b"fetch\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")


def test_after_what_should_not_be_raised_it_tidies_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[str] = []

    def run(remote: str, url: str, environment: Mapping[str, str], at_end: ExitStack, *_: object) -> None:
        at_end.callback(tidied.append, url)
        raise MemoryError

    monkeypatch.setattr(git_remote_run, "run", run)
    monkeypatch.setattr(Interrupts, "heed", lambda self: None)  # This process has tests to do.
    with pytest.raises(MemoryError):
        git_remote_run.serve("origin", "hpss://127.0.0.1:1/x", {}, parent=1)
    assert tidied == ["hpss://127.0.0.1:1/x"]
