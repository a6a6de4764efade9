"""plugins.git.options: what git may set."""

from __future__ import annotations

import pytest
from git_local import key

from smartserver.plugins.git.options import UNSUPPORTED, Options
from smartserver.plugins.git.terminal import CannotGoOn, Terminal


@pytest.mark.parametrize(
    ("option", "answer", "said"),
    [
        ("progress true", "ok", ""),
        ("verbosity 2", "ok", ""),
        ("dry-run true", "ok", ""),
        ("atomic true", "ok", ""),
        ("followtags true", "ok", ""),
        ("cloning true", "ok", ""),
        ("object-format true", "ok", ""),
        ("force true", "ok", ""),
        ("force-if-includes true", "ok", ""),
        (f"cas refs/heads/x:{'0' * 40}", "ok", ""),
        ("depth 1", "unsupported", "hpss: --depth is not supported: the whole history is fetched"),
        ("depth 0", "unsupported", ""),
        ("deepen-relative true", "unsupported", ""),
        ("deepen-since 2020", "unsupported", "hpss: --shallow-since is not supported: the whole history is fetched"),
        ("deepen-not v1", "unsupported", "hpss: --shallow-exclude is not supported: the whole history is fetched"),
        ("filter blob:none", "unsupported", f"hpss: {UNSUPPORTED['filter']}"),
        ("family ipv6", "unsupported", "hpss: -4 and -6 are not supported: every address of the host may be tried"),
        ("pushcert true", "unsupported", ""),
        ("push-option x", "unsupported", ""),
        ("refetch yes", "ok", ""),
        ("check-connectivity true", "unsupported", ""),
        ("update-shallow true", "unsupported", ""),
        ("anything", "unsupported", ""),
    ],
)
def test_answers(option: str, answer: str, said: str) -> None:
    lines: list[str] = []
    assert Options().set(option, Terminal(lines.append)) == answer.encode()
    assert lines == ([said] if said else [])


def test_what_is_set() -> None:
    terminal, options = Terminal(lambda _line: None), Options()
    for option in (
        "progress true",
        "dry-run true",
        "atomic true",
        "refetch yes",
        f"cas refs/heads/a:b:{key(8).hex()}",
        f'cas "refs/heads/dr\\303\\274ck\\"t\\n\\x:{"0" * 40}"',
    ):
        options.set(option, terminal)
    assert terminal.shows_progress
    leases = {b"refs/heads/a:b": key(8), 'refs/heads/dr\u00fcck"t\nx'.encode(): b""}
    assert options == Options(dry_run=True, atomic=True, refetch=True, leases=leases)
    for option in ("progress false", "dry-run false", "atomic false", "refetch false"):
        options.set(option, terminal)
    assert not terminal.shows_progress
    assert options == Options(leases=leases)


def test_a_shallow_repository_cannot_be_made_whole() -> None:
    with pytest.raises(CannotGoOn, match="--unshallow is not supported"):
        Options().set("depth 2147483647", Terminal(lambda _line: None))


@pytest.mark.parametrize(("verbosity", "lines"), [("0", 0), ("1", 1), ("2", 1)])
def test_who_wants_it_quiet_is_told_nothing(verbosity: str, lines: int) -> None:
    """Git says how loud before anything else."""
    said: list[str] = []
    options, terminal = Options(), Terminal(said.append)
    assert options.set(f"verbosity {verbosity}", terminal) == b"ok"
    assert options.set("depth 1", terminal) == b"unsupported"
    assert len(said) == lines


@pytest.mark.parametrize("option", ["depth 1", "filter blob:none", "family ipv6"])
def test_what_is_not_supported_is_said_once(option: str) -> None:
    lines: list[str] = []
    options, terminal = Options(), Terminal(lines.append)
    assert [options.set(option, terminal), options.set(option, terminal)] == [b"unsupported"] * 2
    assert len(lines) == 1
