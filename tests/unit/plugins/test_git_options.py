"""plugins.git.options: what git may set."""

from __future__ import annotations

import pytest
from git_local import key

from smartserver.plugins.git.options import Options, filters_of
from smartserver.plugins.git.terminal import Terminal
from smartserver.vcs.git.selector import BLOBS, TREES, Filter

OID = "sparse:oid=main:sparse"


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
        ("depth 1", "ok", ""),
        ("depth 0", "ok", ""),
        ("deepen-relative true", "ok", ""),
        ("deepen-since 2020", "ok", ""),
        ("deepen-not v1", "ok", ""),
        ("filter blob:none", "ok", ""),
        (f"filter {OID}", "unsupported", f"hpss: --filter={OID} is not supported: all objects are fetched"),
        ("from-promisor 1", "ok", ""),
        ("family ipv6", "unsupported", "hpss: -4 and -6 are not supported: every address of the host may be tried"),
        ("pushcert true", "unsupported", ""),
        ("push-option x", "ok", ""),
        ("refetch yes", "ok", ""),
        ("check-connectivity true", "unsupported", ""),
        ("update-shallow true", "ok", ""),
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


def test_push_options_in_their_order() -> None:
    options = Options()
    for option in ("push-option b", 'push-option "a\\tb \\303\\266"', 'push-option "\\377"'):
        options.set(option, Terminal(lambda _line: None))
    assert options == Options(push_options=["b", "a\tb ö", "\\xff"])


def test_where_history_is_cut() -> None:
    terminal, options = Terminal(lambda _line: None), Options()
    for option in (
        "depth 2147483647",
        "deepen-relative true",
        'deepen-since "2 weeks\\tago"',
        "deepen-not v1",
        "deepen-not v2",
    ):
        options.set(option, terminal)
    assert options.deepens
    assert options == Options(
        depth=2147483647, relative=True, since="2 weeks\tago", excluded={b"v1": None, b"v2": None}
    )
    # As before the tags that a fetch follows.
    again = Options(depth=3)
    again.set("depth 0", terminal)
    assert not again.deepens


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("blob:none", [(BLOBS, 0)]),
        ("blob:limit=17", [(BLOBS, 17)]),
        ("blob:limit=2K", [(BLOBS, 2048)]),
        ("tree:0", [(TREES, 0)]),
        ("combine:tree:2+blob%3alimit=1m", [(TREES, 2), (BLOBS, 1 << 20)]),
        ("combine:tree:2+sparse:oid=x", None),
        ("object:type=tree", None),
        ("blob:limit=k", None),
        ("blob:limit=-1", None),
        ("tree:" + 19 * "1", None),
    ],
)
def test_filters(spec: str, found: list[Filter] | None) -> None:
    assert filters_of(spec) == found


@pytest.mark.parametrize(("verbosity", "lines"), [("0", 0), ("1", 1), ("2", 1)])
def test_who_wants_it_quiet_is_told_nothing(verbosity: str, lines: int) -> None:
    """Git says how loud before anything else."""
    said: list[str] = []
    options, terminal = Options(), Terminal(said.append)
    assert options.set(f"verbosity {verbosity}", terminal) == b"ok"
    assert options.set("family ipv6", terminal) == b"unsupported"
    assert len(said) == lines


@pytest.mark.parametrize("option", [f"filter {OID}", "family ipv6"])
def test_what_is_not_supported_is_said_once(option: str) -> None:
    lines: list[str] = []
    options, terminal = Options(), Terminal(lines.append)
    assert [options.set(option, terminal), options.set(option, terminal)] == [b"unsupported"] * 2
    assert len(lines) == 1
