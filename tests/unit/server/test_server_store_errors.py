"""server.store_errors: what a client is told of an error of the store, and what is logged of it."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
from dialogs import PATH, Dialog, Served, message
from session_calls import PULL, refused

from smartserver.errors import Banned, CorruptFile, NoSuchRepository
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.site import RepositoryLocation, Site
from smartserver.server.store_errors import GONE, user_error
from smartserver.store.repository import PackRepository
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from transports.errors import CodedError, NoSpace, NoSuchFile, TransportFailed
from transports.local import LocalTransport


@pytest.mark.parametrize("lost", ["pack", "pack and index"])
def test_a_pack_that_is_gone_is_damage(served: Served, caplog: pytest.LogCaptureFixture, lost: str) -> None:
    """Location when the body is read, or when the repository is opened."""
    (pack,) = [path for path in served.files() if path.endswith(".pack")]
    served.transport.delete(pack)
    if lost == "pack and index":
        served.transport.delete(pack.replace(".pack", ".idx"))
    answer = Dialog(Site(served.transport)).ask(message(PULL))
    error = refused(answer)
    assert isinstance(error, CorruptFile)
    assert (error.path, error.offset, error.why) == (pack.removeprefix(f"{PATH}/"), 0, "the file is missing")
    assert f"{PATH} is damaged: {error.path} at byte 0" in caplog.text


@pytest.mark.parametrize(("name", "found"), [("HEAD", "a git repository"), (".hg", "a Mercurial repository")])
def test_what_is_there_instead_is_told(served: Served, name: str, found: str) -> None:
    for place in ("other", f"other/{name}", "other/objects"):
        served.transport.make_directory(place)
    error = refused(Dialog(served.site).ask(message(PULL, path="/other")))
    assert isinstance(error, NoSuchRepository)
    assert error.found == found
    nobody = Dialog(served.site, anonymous(Anonymous.NONE, local=True))
    assert refused(nobody.ask(message(PULL, path="/other"))).code == "access-denied"


def test_what_is_banned_while_it_is_looked_for_is_told_as_that(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The served files may be those of another server: it is no bug of this one."""

    def instead(repository: PackRepository) -> str:
        raise Banned("list_dir", "per-item")

    monkeypatch.setattr(PackRepository, "describe_place", instead)
    assert refused(Dialog(served.site).ask(message(PULL, path="/other"))).code == "banned"
    assert not caplog.text


def test_what_else_goes_wrong_is_sent_as_it_is(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    found = served.site.find(PATH)
    missing = NoSuchFile(f"{PATH}/packs/x.pack")
    for error, where in [
        (NoSpace(f"{PATH}/packs/x.pack"), found),
        (NoSuchFile(f"{PATH}/incoming/x"), found),
        (NoSuchFile("packs/x.pack"), None),
        (missing, None),
        (missing, RepositoryLocation(found.repository, False)),
        (NoSuchRepository("another"), found),
    ]:
        assert user_error(error, where, "it") is error
    assert not caplog.text


def test_a_store_that_fails_and_a_refused_user_are_logged_with_the_refusal(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line each; other refusals are not."""
    (pack,) = [path for path in served.files() if path.endswith(".pack")]
    for error in (NoSpace(pack), TransportFailed(pack, os.strerror(errno.EMFILE))):

        def fail(*_: object, wrong: CodedError = error) -> None:
            raise wrong

        with monkeypatch.context() as patch:
            patch.setattr(PackRepository, "begin", fail)
            assert refused(Dialog(served.site).ask(message(PULL))).code == error.code
        assert caplog.messages == [f"a test: Repository.pull on '{PATH}': {error.code}: {error}"]
        assert error.code in caplog.records[0].msg  # It is of a kind of its own: a log bounds each.
        caplog.clear()
    nobody = Dialog(served.site, anonymous(Anonymous.NONE, local=True))
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    why = "access-denied: not allowed: read: this server admits no anonymous users (`serve --anonymous none`)"
    assert caplog.messages == [f"a test: Repository.pull on '{PATH}': {why}"]
    caplog.clear()
    assert refused(Dialog(served.site).ask(message(PULL, path="absent"))).code == "no-such-repository"
    assert not caplog.messages
    caplog.set_level(logging.ERROR, "smartserver.refusals")  # As where the one user is told.
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    assert not caplog.messages
    caplog.set_level(logging.INFO, "smartserver")
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    (line,) = caplog.messages
    assert line.startswith(f'request user=anonymous from="a test" path={PATH} verbs=Repository.pull ')
    assert line.endswith(" outcome=access-denied")
    caplog.clear()
    caplog.set_level(logging.WARNING, "smartserver.refusals")
    caplog.set_level(logging.INFO, "smartserver")
    assert refused(nobody.ask(message(PULL))).code == "access-denied"
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_damage_of_the_served_folder_itself(caplog: pytest.LogCaptureFixture) -> None:
    damage = CorruptFile("root", 0, "the content does not match its check")
    assert user_error(damage, Served().site.find(""), "it") is damage
    assert "the served folder is damaged: root at byte 0" in caplog.text


@pytest.mark.parametrize("path", ["gone", PATH])
def test_a_served_folder_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str) -> None:
    """It is told where a repository is to be made there, and where one was there a moment ago."""
    site = Site(LocalTransport(tmp_path / "root"))
    dialog, words = Dialog(site), f"{site.name} {GONE}"
    create = (repository_create, CreateRequest("git sha1", [KindField("object", "git-sha1", True)]))
    for call in (PULL, create):
        error = refused(dialog.ask(message(call, path=path)))
        assert str(error) == words
        assert caplog.text.count(words) == 1
        assert f"on '{path}': transport-failed: {words}" in caplog.text
        caplog.clear()
