"""server.sizes, server.push_checks: limits of sizes in the access file, and what a push beyond one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import MAIN
from dialogs import Dialog, Served, message
from session_calls import INSERT, refused, set_ref

from smartserver.server.access import RuledUser
from smartserver.server.rules import AccessFile, AccessRules
from smartserver.server.sizes import NO_LIMITS, SizeLimits, parse_size
from smartserver.server.watched import UnusableFile
from smartserver.wire.messages import Failure, RequestFlag

RULE = '[[rules]]\nwho = ["anna"]\npath = "**"\nmay = "admin"\n'


@pytest.mark.parametrize(
    ("text", "size"),
    [(17, 17), ("17", 17), ("17 B", 17), ("3KB", 3000), ("50 MB", 50_000_000), ("2 GiB", 2 << 30), ("1 TB", 10**12)],
)
def test_a_size(text: str | int, size: int) -> None:
    assert parse_size("max-file-size", text) == size


@pytest.mark.parametrize("text", ["", "many", "1.5 GB", "-1", "3 mb", "5 PB", -1])
def test_what_is_no_size(text: str | int) -> None:
    with pytest.raises(UnusableFile, match=r"max-file-size = .*: expected bytes, as 5000000"):
        parse_size("max-file-size", text)


def test_of_each_limit_the_first_entry_that_fits_counts() -> None:
    rules = AccessRules(
        f"""{RULE}
        [[limits]]
        path = "team/**"
        max-file-size = 10
        [[limits]]
        path = "**"
        max-file-size = "1 KB"
        max-repository-size = "1 MB"
        """.encode()
    )
    assert rules.sizes("team/one") == rules.sizes("Team/one") == SizeLimits(1_000_000, 10)
    assert rules.sizes("other") == SizeLimits(1_000_000, 1000)
    assert AccessRules(RULE.encode()).sizes("team/one") == NO_LIMITS


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('path = "x"', "limit 1: expected max-repository-size, max-file-size, or both"),
        ('path = "x"\nmax-file-size = "much"', "limit 1: max-file-size = 'much': expected bytes"),
        ("max-file-size = 1", "Object missing required field `path` - at `limit 1`"),
    ],
)
def test_an_entry_that_is_wrong_is_named(entry: str, why: str) -> None:
    with pytest.raises(UnusableFile) as wrong:
        AccessRules(f"{RULE}[[limits]]\n{entry}\n".encode())
    assert why in str(wrong.value)


@pytest.mark.parametrize("graph_first", [False, True])
def test_a_push_beyond_a_limit_is_refused_by_name_and_leaves_nothing(
    served: Served, tmp_path: Path, graph_first: bool
) -> None:
    file = tmp_path / "access.toml"
    flags = RequestFlag.BODY | (RequestFlag.GRAPH_FIRST if graph_first else RequestFlag.NONE)
    history = served.history
    (first,) = history.line(1)
    served.push([first], {MAIN: first})
    # It is removed again by the next revision, and is a file of the history all the same.
    large = history.commit({**history.files(first), "assets/big.bin": b"0123456789" * 600}, (first,))
    last = history.commit({**history.files(first), "new": b"x\n"}, (large,))
    size = served.repository().snapshot().state.packs[0]
    stored = size.length + size.index_length
    body, before = history.body([large, last], graph_first=graph_first), served.files()

    def push(limits: str) -> object:
        file.write_text(f'{RULE}[[limits]]\npath = "project"\n{limits}\n')
        rules = AccessFile(file)
        served.site.sizes = rules.sizes
        dialog = Dialog(served.site, RuledUser("anna", rules))
        request = message(INSERT, set_ref(last), flags=flags)
        answer = dialog.ask(request, body, 2)
        if not isinstance(answer, Failure):
            return answer
        assert served.files() == before
        return str(refused(answer))

    said = push("max-file-size = 5999")
    assert said == "too many bytes of the file assets/big.bin (max-file-size): 6000, at most 5999 are allowed"
    said = push(f"max-repository-size = {stored + 100}")
    assert str(said).startswith("too many bytes of the repository project (max-repository-size): ")
    assert str(said).endswith(f", at most {stored + 100} are allowed")
    served.site.sizes = lambda path: NO_LIMITS
    assert not isinstance(push('max-file-size = 6000\nmax-repository-size = "1 MB"'), str)
    assert served.refs() == {MAIN: last}


def test_a_repository_over_its_limit_lets_refs_be_removed(served: Served) -> None:
    made = served.history.line(2)
    served.push(made, {MAIN: made[1], b"refs/heads/side": made[0]})
    served.site.sizes = lambda path: SizeLimits(1, 1)
    answer = Dialog(served.site).ask(message(set_ref(made[1])))
    assert not isinstance(answer, Failure)
