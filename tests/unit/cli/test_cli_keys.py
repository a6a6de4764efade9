"""smartserver.cli.access keys: the lines of authorized_keys for the keys of an access file."""

from __future__ import annotations

import base64
import hashlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import why
from click.testing import CliRunner

from smartserver.cli import access
from smartserver.cli.logs import NO_SYSLOG
from smartserver.cli.main import group
from smartserver.server.rules import PublicKey

SMARTSERVER = str(Path(sys.executable).parent / "smartserver")

RULE = '[[rules]]\nwho = ["anna"]\npath = "**"\nmay = "create"\n'


def key(number: int, kind: str = "ssh-ed25519") -> str:
    blob = len(kind).to_bytes(4, "big") + kind.encode() + bytes([0, 0, 0, 32]) + bytes([number]) * 32
    return f"{kind} {base64.b64encode(blob).decode()}"


def fingerprint(number: int) -> str:
    blob = base64.b64decode(key(number).split()[1])
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", [__file__])
    path = tmp_path / "access.toml"
    path.write_text(f'[keys]\nanna = ["{key(1)} anna@laptop", "{key(2)}"]\nben = ["{key(3)}"]\n\n{RULE}')
    return path


def lines(*arguments: str) -> list[str]:
    result = CliRunner().invoke(group, ["access", "keys", *arguments])
    assert result.exit_code == 0, result.exception
    return result.stdout.splitlines()


def test_a_line_for_each_key(file: Path) -> None:
    found = lines(str(file), "/srv/my code")
    command = f"{__file__} serve '/srv/my code' --stdio --access {file} --log syslog --user"
    assert found == [
        f'restrict,command="{command} {user} --key {fingerprint(number)}" {key(number)} {user}'
        for user, number in (("anna", 1), ("anna", 2), ("ben", 3))
    ]
    assert shlex.split(found[0].split('"')[1])[:3] == [__file__, "serve", "/srv/my code"]


def test_a_folder_or_a_syslog_that_is_missing_is_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SYSLOG", str(tmp_path / "log"))

    def told(root: Path, *more: str) -> str:
        result = CliRunner().invoke(group, ["access", "keys", str(file), str(root), *more])
        assert result.stdout.count("restrict") == (1 if "--lookup" in more else 3)
        return result.stderr

    folder = f"{tmp_path / 'absent'} is not a folder: nobody can log in by these keys until it is\n"
    syslog = f"{NO_SYSLOG}: log-ins by these keys are not logged; --log FILE logs to a file\n"
    assert told(tmp_path / "absent") == folder + syslog
    assert told(tmp_path / "absent", "--log", "/var/log/hpss") == folder
    assert told(tmp_path) == syslog
    assert told(tmp_path / "absent", "--lookup", *key(1).split()) == ""
    (tmp_path / "log").touch()
    assert told(tmp_path) == ""


def test_the_log_may_be_a_file(file: Path) -> None:
    (found, *_) = lines(str(file), "/srv", "--log", "/var/log/hpss")
    assert " --log /var/log/hpss --user anna" in found


def test_a_quote_in_a_path_does_not_end_the_command(file: Path) -> None:
    (found, *_) = lines(str(file), '/srv/a"b')
    assert "serve '/srv/a\\\"b' --stdio" in found


@pytest.mark.parametrize(("number", "count"), [(2, 1), (7, 0)])
def test_one_key_is_looked_up(file: Path, number: int, count: int) -> None:
    found = lines(str(file), "/srv", "--lookup", *key(number).split())
    assert [line.endswith(f"{key(number)} anna") for line in found] == [True] * count


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('anna = ["AAAA"]', "keys.anna: 'AAAA'... is no public key"),
        ('anna = ["ssh-rsa {}"]', "is no public key"),
        ('anna = ["ssh-ed25519 AAA*"]', "is no public key"),
        ('anna = ["command=x ssh-ed25519 AAAA"]', "is no public key"),
        ('"an na" = []', "is no name"),
        ('anna = ["ssh-ed25519 {}"]\nben = ["ssh-ed25519 {}"]', "is one of 'anna' too"),
    ],
)
def test_keys_that_are_refused(file: Path, keys: str, said: str) -> None:
    file.write_text("[keys]\n" + keys.replace("{}", key(1).split()[1]) + "\n" + RULE)
    result = CliRunner().invoke(group, ["access", "keys", str(file), "/srv"])
    assert said in why(result)


def test_a_file_that_locks_everybody_out_is_in_the_log(file: Path, tmp_path: Path) -> None:
    """Sshd logs nothing of what an AuthorizedKeysCommand says on its standard error."""
    file.write_text("garbage [[")
    words = [SMARTSERVER, "access", "keys", str(file), "/srv", "--log", str(tmp_path / "log")]
    for lookup in ([], ["--lookup", *key(1).split()]):
        done = subprocess.run([*words, *lookup], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "access.toml" in done.stderr
        assert (tmp_path / "log").exists() is bool(lookup)
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert f" ERROR nobody can log in by a key: {done.stderr.removeprefix('smartserver: ').strip()}" in line


def test_a_program_that_sshd_could_not_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/nowhere/smartserver"])
    result = CliRunner().invoke(group, ["access", "keys", str(file), "/srv"])
    assert "/nowhere/smartserver is not a program" in why(result)


def test_a_fingerprint_is_that_of_ssh_keygen() -> None:
    kind, content = "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIANwpMv1I/B9SccdBtX3WlLguRY+ZZ7nGyNaWPaEFCG9"
    assert PublicKey("anna", kind, content).fingerprint == "SHA256:NMyC8JYHoXpVMr+ecYCZvhfj3VJWAd/kpC3NXU6l6vY"
