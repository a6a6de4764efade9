"""smartserver.cli.access, cli.token: an access file is checked and explained; its keys for sshd; its tokens."""

from __future__ import annotations

import base64
import hashlib
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runs import run, why

from smartserver.cli import access
from smartserver.cli.logs import NO_SYSLOG
from smartserver.server.rules import PublicKey
from smartserver.server.tokens import TokenFile, token_path

MAIN = "refs/heads/main"
RULE_1 = 'rule 1 (who = ["anna"], path = "p/**", may = "create")'
RULES = '[[rules]]\nwho = ["anna"]\npath = "p/**"\nmay = "create"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(RULES)
    return path


def test_a_file_is_checked(file: Path) -> None:
    result = run("access", "check", file)
    assert (result.exit_code, result.output) == (0, f"{file}: anna has no key and no token\n{file}: 1 rule\n")
    hook = '[[hooks]]\npath = "**"\nbefore = ["/bin/true"]\nafter = ["/no/such"]\n'
    file.write_text(RULES + '[[limits]]\npath = "**"\nmax-file-size = 1\n' + hook + hook)
    said = f"{file}: hooks run /no/such, which is no program here\n{file}: 1 rule, 1 limit, 2 hooks\n"
    assert run("access", "check", file).output.endswith(said)
    file.write_text(RULES + "\n[[rules]]\n")
    assert why(run("access", "check", file)) == f"{file}: Object missing required field `who` - at `rule 2`"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("anna read /p/x/", 0, f"yes: anna has the right 'read' to p/x, by {RULE_1}"),
        (f"anna force p {MAIN}", 1, f"no: anna does not have the right 'force' to p, {MAIN}, by {RULE_1}"),
        ("ben read p", 1, "no: ben does not have the right 'read' to p: no rule is about that"),
    ],
)
def test_what_a_user_may_do_is_explained(file: Path, words: str, status: int, said: str) -> None:
    result = run("access", "explain", file, *words.split())
    assert (result.exit_code, result.output.strip()) == (status, said)


def test_what_cannot_be_explained(file: Path) -> None:
    for arguments, said in (
        (["a b", "read", "p"], "'a b' is not a valid user name"),
        (["anna", "read", "../p"], "'..' is not allowed in it"),
        (["anna", "read", "p", MAIN], "read is a right to the whole repository"),
    ):
        assert said in why(run("access", "explain", file, *arguments))


# -- keys


def key(number: int, kind: str = "ssh-ed25519") -> str:
    blob = len(kind).to_bytes(4, "big") + kind.encode() + bytes([0, 0, 0, 32]) + bytes([number]) * 32
    return f"{kind} {base64.b64encode(blob).decode()}"


def fingerprint(number: int) -> str:
    blob = base64.b64decode(key(number).split()[1])
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


@pytest.fixture
def keys(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with keys, and a program that sshd could run."""
    monkeypatch.setattr(sys, "argv", [__file__])
    file.write_text(f'[keys]\nanna = ["{key(1)} anna@laptop", "{key(2)}"]\nben = ["{key(3)}"]\n\n{RULES}')
    return file


def lines(*arguments: object) -> list[str]:
    result = run("access", "keys", *arguments)
    assert result.exit_code == 0, result.exception
    return result.stdout.splitlines()


def test_a_line_for_each_key(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(keys, "/srv/my code")
    command = f"{__file__} serve '/srv/my code' --stdio --access {keys} --log syslog --user"
    assert found == [
        f'restrict,command="{command} {user} --key {fingerprint(number)}" {key(number)} {user}'
        for user, number in (("anna", 1), ("anna", 2), ("ben", 3))
    ]
    assert shlex.split(found[0].split('"')[1])[:3] == [__file__, "serve", "/srv/my code"]
    assert " --log /var/log/hpss --user anna" in lines(keys, "/srv", "--log", "/var/log/hpss")[0]
    assert "serve '/srv/a\\\"b' --stdio" in lines(keys, '/srv/a"b')[0]  # Its quote does not end the command.
    monkeypatch.setattr(sys, "argv", ["/nowhere/smartserver"])
    assert "/nowhere/smartserver is not a program" in why(run("access", "keys", keys, "/srv"))


def test_a_folder_or_a_syslog_that_is_missing_is_told(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SYSLOG", str(tmp_path / "log"))

    def told(root: Path, *more: str) -> str:
        result = run("access", "keys", keys, root, *more)
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


@pytest.mark.parametrize(("number", "count"), [(2, 1), (7, 0)])
def test_one_key_is_looked_up(keys: Path, number: int, count: int) -> None:
    found = lines(keys, "/srv", "--lookup", *key(number).split())
    assert [line.endswith(f"{key(number)} anna") for line in found] == [True] * count


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('anna = ["AAAA"]', "keys.anna: 'AAAA'... is no public key"),
        ('anna = ["ssh-rsa {}"]', "is no public key"),
        ('anna = ["ssh-ed25519 AAA*"]', "is no public key"),
        ('anna = ["command=x ssh-ed25519 AAAA"]', "is no public key"),
        ('"an na" = []', "is no name"),
        ('anna = ["ssh-ed25519 {}"]\nben = ["ssh-ed25519 {}"]', "is one of 'anna' too"),
    ],
)
def test_keys_that_are_refused(keys: Path, text: str, said: str) -> None:
    keys.write_text("[keys]\n" + text.replace("{}", key(1).split()[1]) + "\n" + RULES)
    assert said in why(run("access", "keys", keys, "/srv"))


def test_a_file_that_locks_everybody_out_is_in_the_log(keys: Path, tmp_path: Path) -> None:
    """Sshd logs nothing of what an AuthorizedKeysCommand says on its standard error."""
    keys.write_text("garbage [[")
    smartserver = str(Path(sys.executable).parent / "smartserver")
    words = [smartserver, "access", "keys", str(keys), "/srv", "--log", str(tmp_path / "log")]
    for lookup in ([], ["--lookup", *key(1).split()]):
        done = subprocess.run([*words, *lookup], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "access.toml" in done.stderr
        assert (tmp_path / "log").exists() is bool(lookup)
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert f" ERROR nobody can log in by a key: {done.stderr.removeprefix('smartserver: ').strip()}" in line


def test_a_fingerprint_is_that_of_ssh_keygen() -> None:
    kind, content = "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIANwpMv1I/B9SccdBtX3WlLguRY+ZZ7nGyNaWPaEFCG9"
    assert PublicKey("anna", kind, content).fingerprint == "SHA256:NMyC8JYHoXpVMr+ecYCZvhfj3VJWAd/kpC3NXU6l6vY"


# -- tokens


def test_a_token_is_all_that_is_printed_and_is_revoked_by_its_id(file: Path) -> None:
    result = run("token", "create", file, "anna")
    found = TokenFile(token_path(file)).content.find(result.stdout.removesuffix("\n"))
    assert found is not None
    said = f"token {found.text.id} of anna, valid until it is revoked; it is not shown again:\n"
    assert (result.exit_code, result.stderr) == (0, said)
    assert run("token", "create", file, "ben").stderr.startswith(f"{file} has no rule that gives ben anything\n")
    token_id = found.text.id
    result = run("token", "revoke", file, token_id)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"token {token_id} of anna is revoked\n")
    assert why(run("token", "revoke", file, token_id)) == f"{token_path(file)}: there is no token {token_id!r}"


def test_tokens_are_listed_without_what_they_are(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("token", "list", file).stdout == ""
    made = [
        run("token", "create", file, "anna").stdout.strip(),
        run("token", "create", file, "anna", "--path", "p/x", "--read-only", "--expires", "12h").stdout.strip(),
    ]
    before = time.time()
    known = TokenFile(token_path(file)).content.known
    assert known[1].text.expires is not None
    assert abs(known[1].text.expires - before - 12 * 3600) < 3600
    result = run("token", "list", file)
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{known[0].text.id}  anna  ")
    assert first.endswith("  until it is revoked")
    assert "  until " in second
    assert second.endswith("  path p/x  read only")
    for token, each in zip(made, known, strict=True):
        assert token[5:] not in result.output
        assert each.text.sha256 not in result.output
    monkeypatch.setattr(time, "time", lambda: before + 24 * 3600)
    assert "  expired " in run("token", "list", file).stdout


@pytest.mark.parametrize("expires", ["", "90", "0d", "-1d", "1.5d", "90days", "1234567d"])
def test_a_time_that_is_none(file: Path, expires: str) -> None:
    result = run("token", "create", file, "anna", "--expires", expires)
    assert why(result).startswith(f"--expires {expires!r}: expected a number")
    assert result.stdout == ""
    assert not token_path(file).exists()


def test_what_makes_no_token(file: Path) -> None:
    assert "'a b' is not a valid user name" in why(run("token", "create", file, "a b"))
    assert "path = '/p': a slash at its start" in why(run("token", "create", file, "anna", "--path", "/p"))
    assert why(run("token", "create", file.with_name("none"), "anna")).endswith("No such file or directory")
    token_path(file).write_text("{")
    assert why(run("token", "list", file)).startswith(f"{token_path(file)}: ")
