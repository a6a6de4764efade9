"""smartserver.cli.config: on a folder and on a URL."""

from __future__ import annotations

import pytest
from builders import MAIN, SETTINGS
from cli_runs import Places, run, why
from click.testing import Result
from stored import stored

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport


def config(*arguments: str) -> Result:
    return run("config", *arguments)


def test_head_is_read_and_set(places: Places) -> None:
    folder, place = places
    stored(folder / "p", 1)
    project = place("p")
    assert SETTINGS == {"HEAD": MAIN}
    assert config(project, "head").output == f"{MAIN.decode()}\n"
    assert config(project, "HEAD", "trunk").output == "refs/heads/trunk  (there is no such branch yet)\n"
    assert config(project, "head").output == "refs/heads/trunk  (there is no such branch yet)\n"
    assert config(project, "head", "refs/heads/main").output == f"{MAIN.decode()}\n"
    assert PackRepository(LocalTransport(folder / "p")).snapshot().state.settings == SETTINGS


def test_a_wrong_value_changes_nothing(places: Places) -> None:
    folder, place = places
    stored(folder / "p", 1)
    assert "git allows no such ref" in why(config(place("p"), "head", "a..b"))
    assert config(place("p"), "description", "x").exit_code == 2
    assert config(place("p"), "head").output == f"{MAIN.decode()}\n"


def test_no_repository(places: Places) -> None:
    folder, place = places
    folder.mkdir(exist_ok=True)
    for value in ([], ["main"]):
        assert "no repository at" in why(config(place("absent"), "head", *value))
    assert not (folder / "absent").exists()


@pytest.mark.parametrize(("name", "default"), [("publishing", "yes"), ("evolution", "no")])
def test_what_is_yes_or_no_is_read_and_set(places: Places, name: str, default: str) -> None:
    folder, place = places
    stored(folder / name, 2)
    for value in ("", "no", "", "yes"):
        done = config(place(name), name, *([value] if value else []))
        assert done.exit_code == 0, done.exception
        assert value or done.stdout in (f"{default}\n", "no\n")
    assert done.stdout == "yes\n"
    assert config(place(name), name).stdout == "yes\n"
