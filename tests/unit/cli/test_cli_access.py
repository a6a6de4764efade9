"""cli.access, token, hooks, place: an access file is checked; its keys and tokens; its hooks are tried."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from cli_runs import run, stored, why
from scripts import script

from smartserver.cli import access
from smartserver.cli.logs import NO_SYSLOG
from smartserver.cli.place import open_store, repository_in
from smartserver.cli.serve_options import check_root
from smartserver.records.model import RevisionId
from smartserver.server.tokens import TokenFile, token_path
from smartserver.store.preview_folder import NEW, PREVIEW, PreviewedStore

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
    said = f"{file}: hooks run /no/such, which is not a program on this machine\n{file}: 1 rule, 1 limit, 2 hooks\n"
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

    folder = f"{tmp_path / 'absent'} is not a folder: create it, else no user can log in with these keys\n"
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
        ('anna = ["AAAA"]', "keys.anna: 'AAAA'... is not a public key"),
        ('anna = ["ssh-rsa {}"]', "is not a public key"),
        ('anna = ["ssh-ed25519 AAA*"]', "is not a public key"),
        ('anna = ["command=x ssh-ed25519 AAAA"]', "is not a public key"),
        ('"an na" = []', "is not a valid name"),
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
    assert f" ERROR no user can log in with a key: {done.stderr.removeprefix('smartserver: ').strip()}" in line


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


RULE = '[[rules]]\nwho = ["anna"]\npath = "**"\nmay = "admin"\n'


@pytest.fixture
def line(tmp_path: Path) -> list[RevisionId]:
    """A repository of three revisions, at `served/project`."""
    (tmp_path / "served").mkdir()
    return list(stored(tmp_path / "served" / "project", 3).parents)


def rules_in(folder: Path, text: str) -> Path:
    file = folder / "access.toml"
    file.write_text(RULE + text)
    return file


def test_a_hook_is_run_for_the_change_of_a_ref(tmp_path: Path, line: list[RevisionId]) -> None:
    log = 'smartserver log -q "$SMARTSERVER_NEW" | wc -l'
    hook = script(tmp_path / "check", f"cat > {tmp_path}/told; {log}; test ! -e {tmp_path}/no")
    file = rules_in(tmp_path, f'[[hooks]]\npath = "pro*"\nbefore = ["{hook}"]\n')
    words = ("hooks", "test", file, tmp_path / "served", "project")
    done = run(*words, "--ref", "main", "--user", "anna")
    assert (done.exit_code, done.output) == (0, f"before {hook}: accepts\n")
    told = json.loads((tmp_path / "told").read_text())
    assert (told["path"], told["user"], told["repository"]) == ("project", "anna", "changed")
    assert told["changes"] == [{"ref": "refs/heads/main", "old": [line[1].hex()], "new": [line[2].hex()]}]
    (tmp_path / "no").touch()
    done = run(*words)
    assert (done.exit_code, done.output) == (1, f"before {hook}: refuses: 3\n")
    (change,) = json.loads((tmp_path / "told").read_text())["changes"]
    assert change == {"ref": "refs/heads/example", "old": [], "new": [line[2].hex()]}
    assert "there is no ref 'other'; there is refs/heads/main" in why(run(*words, "--ref", "other"))


def test_receivers_are_told_when_that_is_asked_for(tmp_path: Path, line: list[RevisionId]) -> None:
    hook = script(tmp_path / "check", f"cat > {tmp_path}/told; test ! -e {tmp_path}/no || exit 5")
    file = rules_in(tmp_path, f'[[hooks]]\npath = "**"\nafter = ["{hook}"]\n')
    words = ("hooks", "test", file, tmp_path / "served", "project")
    assert run(*words).output.startswith(f'after {hook}: would be told {{"path": "project", ')
    assert not (tmp_path / "told").exists()
    assert run(*words, "--send", "-o", "ci.skip").output == f"after {hook}: was told\n"
    told = json.loads((tmp_path / "told").read_text())
    assert (told["path"], told["options"]) == ("project", ["ci.skip"])
    (tmp_path / "no").touch()
    done = run(*words, "--send")
    assert (done.exit_code, done.output) == (1, f"after {hook}: fails: it ended with status 5\n")


def test_what_cannot_be_tried(tmp_path: Path, line: list[RevisionId]) -> None:
    file = rules_in(tmp_path, '[[hooks]]\npath = "project"\nbefore = ["/nowhere/check"]\n')
    assert run("hooks", "test", file, tmp_path / "served", "other").output == f"{file} has no hook for other\n"
    said = why(run("hooks", "test", file, tmp_path / "served", "project"))
    assert "/nowhere/check cannot be run: No such file" in said


def test_a_mirror_is_pushed(tmp_path: Path, line: list[RevisionId], monkeypatch: pytest.MonkeyPatch) -> None:
    """Again it has what is new, and no more what is gone."""
    target = tmp_path / "mirror.git"
    words = ("hooks", "mirror", "--folder", tmp_path / "clones", target)
    monkeypatch.delenv("SMARTSERVER_REPOSITORY", raising=False)
    assert "SMARTSERVER_REPOSITORY names no folder" in why(run(*words))
    monkeypatch.setenv("SMARTSERVER_REPOSITORY", str(tmp_path / "served" / "project"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def git(*options: str) -> str:
        return subprocess.run(["git", *options], check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    git("init", "-q", "--bare", str(target))
    assert run(*words).exit_code == 0
    assert git("-C", str(target), "rev-parse", "main") == f"{line[2].hex()}\n"
    git("-C", str(target), "branch", "other", "main")
    git("-C", str(target), "update-ref", "-d", "refs/heads/main")
    assert run(*words).exit_code == 0
    assert git("-C", str(target), "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    assert "git push failed with status" in why(run(*words[:-1], tmp_path / "nowhere.git"))
    assert os.listdir(tmp_path / "clones")


# -- previews


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the file of a preview, whose packs are in another one, too."""
    monkeypatch.delenv(NEW, raising=False)
    stored(tmp_path / "project")
    shutil.copytree(tmp_path / "project", tmp_path / "other")
    store = PreviewedStore(f"file://{tmp_path}/other", str(tmp_path / "copies"), 1)
    (tmp_path / "project" / PREVIEW).write_bytes(msgspec.json.encode(store))
    return tmp_path / "project"


def test_the_file_of_a_preview_is_obeyed_where_a_hook_was_told_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NEW, str(folder))
    for pack in (folder / "packs").iterdir():
        pack.unlink()
    with repository_in(str(folder)) as repository:
        assert repository.verify().problems == ()
    assert run("log", "-q", folder).exit_code == 0
    assert (tmp_path / "copies").exists()


def test_the_file_of_a_preview_is_not_obeyed_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may have written it."""
    monkeypatch.setenv(NEW, str(tmp_path / "other"))
    assert [run(*words, folder).exit_code for words in (["verify"], ["pack"], ["log", "-q"])] == [0, 0, 0]
    (folder / PREVIEW).write_bytes(b"{}")
    assert run("verify", folder).exit_code == 0
    assert not (tmp_path / "copies").exists()


def test_a_server_never_obeys_the_file_of_a_preview(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NEW, str(folder))
    (folder / PREVIEW).write_bytes(b"{}")
    check_root(folder, makes=True)
    assert open_store(str(folder)).get(PREVIEW) == b"{}"
