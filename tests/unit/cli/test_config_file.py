"""cli.config_file: options of `serve` from a file, which the command line overrides, and what is wrong in one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from cli_runs import run, why

from smartserver.cli import serve
from smartserver.cli.config_file import OTHERS
from smartserver.cli.serve_options import GROUPS, ServeOptions

OPTIONS = [each for each in serve.command.params if isinstance(each, click.Option) and each.name != "config"]

VALUES = {
    "listen": '"127.0.0.1:9"', "http": '":8"', "tls": '"a.pem"', "tls_key": '"a.key"', "require_tls": "true",
    "stdio": "true", "anonymous": '"write"', "access": '"a.toml"', "name": '"anna"', "key": '"SHA256:x"',
    "no_create": "true", "allow_vfs": "true", "max_connections": "7", "max_per_address": "5", "idle_timeout": "9",
    "rules": '["rpc:*"]', "fsck": '"off"', "ignored": '["badDate"]', "fast_open": "true", "log_place": '"l"',
    "access_log": '"a"', "metrics": '":8"', "metrics_public": "true", "memory_cache_size": "64", "cache_dir": '"d"',
    "cache_size": "3", "git_cache_size": "4", "workers": "2", "memcached": '"m"', "shared_cache": "0",
    "compression": "4", "slow": "50", "verbose": "true",
}  # fmt: skip
"""A value of each option, none its default."""


def key(option: click.Option) -> str:
    return max(option.opts, key=len).removeprefix("--")


def parsed(*words: str) -> ServeOptions:
    with serve.command.make_context("serve", list(words)) as ctx:
        return ServeOptions(**ctx.params)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "serve.toml"


def test_every_option_has_its_key(file: Path) -> None:
    file.write_text("".join(f"{key(each)} = {VALUES[each.name or '']}\n" for each in OPTIONS))
    found, default = parsed("/srv", "--config", str(file)), parsed("/srv")
    alike = [each.name for each in OPTIONS if getattr(found, each.name or "") == getattr(default, each.name or "")]
    assert alike == []
    assert (found.workers, found.compression, found.ignored, found.cache_dir) == (2, "4", ("badDate",), Path("d"))


def test_the_command_line_wins(file: Path) -> None:
    file.write_text('workers = 3\nlisten = ":1"\nfsck-ignore = ["badDate"]\n')
    for words in (["--workers", "4", "--config", str(file)], ["--config", str(file), "--workers", "4"]):
        found = parsed("/srv", *words)
        assert (found.workers, found.listen, found.ignored, found.slow) == (4, ":1", ("badDate",), None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("wrkers = 2", "unknown key 'wrkers': did you mean workers?"),
        ("[serve]\nworkers = 2", "[serve] is a table: write the options without it, as workers = ..."),
        ('root = "/srv"', "'root' is not an option: give ROOT on the command line, as serve ROOT --config FILE"),
        ('config = "x"', "unknown key 'config': "),
        ("folder = 2", "unknown key 'folder': "),
        ('workers = "2"', "workers: expected a whole number, got '2'"),
        ("workers = true", "workers: expected a whole number, got True"),
        ("workers = 65", "workers: 65 is not in the range 1<=x<=64."),
        ("verbose = 1", "verbose: expected true or false, got 1"),
        ("listen = []", "listen: expected a string, got []"),
        ('ban = "rpc:*"', "ban: expected an array of strings, got 'rpc:*'"),
        ('fsck = "much"', "fsck: 'much' is not one of "),
        ("workers = ", "not valid TOML: Invalid value (at "),
        ('compression = "best"', "compression 'best': expected auto, or a level of 0 to 19"),
        ('metrics = "0.0.0.0:9155"', "metrics 0.0.0.0:9155: other machines can connect to that address"),
        ('ban = ["rpc"]', "ban: no such rule: 'rpc'"),
        ("cache-size = 4", "cache-size is for a bucket that is served"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file_and_the_key(file: Path, content: str, said: str) -> None:
    file.write_text(content)
    wrong = why(run("serve", file.parent, "--config", file))
    assert wrong.startswith(f"{file}: {said}")
    assert "\n" not in wrong


def test_what_is_not_the_file_s_fault(file: Path) -> None:
    assert why(run("serve", file.parent, "--config", file)) == f"{file}: No such file or directory"
    file.write_text('compression = "9"\n')
    wrong = run("serve", file.parent, "--config", file, "--compression", "best")
    assert why(wrong) == "--compression 'best': expected auto, or a level of 0 to 19"


def test_the_help_has_each_option_in_one_group() -> None:
    text = serve.command.get_help(click.Context(serve.command, info_name="serve"))
    titles = [*GROUPS, OTHERS]
    places = [text.index(f"{title}:\n") for title in titles]
    assert places == sorted(places)
    for option in OPTIONS:
        (title,) = [title for title, names in GROUPS.items() if option.name in names]
        at = titles.index(title)
        assert option.opts[-1] in text[places[at] : places[at + 1]]
    assert "--config FILE" in text[places[-1] :]
