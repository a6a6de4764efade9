"""server.header: what holds for each verb because it is declared. A new one needs an example in `verb_examples`."""

from __future__ import annotations

import msgspec
import pytest
from dialogs import Dialog, Served, message
from verb_examples import EXAMPLES, served_examples

from smartserver.server.access import FixedAccess
from smartserver.verbs.all import every_verb
from smartserver.verbs.declare import VERBS, AnyVerb, Body, Effect, Permission
from smartserver.wire.messages import Failure, Reply, Request, RequestFlag, named


@pytest.fixture
def served() -> Served:
    return served_examples()[0]


@pytest.fixture(params=[verb.name for verb in every_verb()])
def verb(request: pytest.FixtureRequest) -> AnyVerb:
    return VERBS[request.param]


def use(verb: AnyVerb, line: list[bytes]) -> Request:
    """The request of a verb's example."""
    example = EXAMPLES[verb.name]
    flags = RequestFlag.BODY if verb.body is Body.UP else RequestFlag.NONE
    return message((verb, example.arguments(line)), path=example.path, flags=flags)


def ask(dialog: Dialog, verb: AnyVerb, request: Request, served: Served, line: list[bytes]) -> Reply | Failure:
    up = verb.body is Body.UP
    return dialog.ask(request, served.history.segment(line[3]) if up else b"", int(up))


def state(served: Served) -> tuple[list[str], dict[bytes, bytes], bytes]:
    files = served.files()
    return files, served.refs(), served.transport.get("files/file") if "files/file" in files else b""


def test_every_verb_has_an_example() -> None:
    assert sorted(EXAMPLES) == [verb.name for verb in every_verb()]


def test_it_is_carried_out(served: Served, line: list[bytes], verb: AnyVerb) -> None:
    before = state(served)
    answer = ask(Dialog(served.site), verb, use(verb, line), served, line)
    assert isinstance(answer, Reply), answer
    msgspec.msgpack.decode(answer.outcomes[0].result, type=verb.result_type)
    # What changes something says so, and what does not changes nothing.
    nothing_to_do = verb.name in ("sync_dir", "Repository.mend")
    assert (state(served) != before) is (verb.effect is Effect.MUTATE and not nothing_to_do)


def test_each_permission_it_needs_is_asked_for(served: Served, line: list[bytes], verb: AnyVerb) -> None:
    for missing in EXAMPLES[verb.name].needs:
        access = FixedAccess("joe", frozenset(Permission) - {missing}, "the test says so")
        answer = ask(Dialog(served.site, access), verb, use(verb, line), served, line)
        assert isinstance(answer, Failure), missing
        assert answer.fault.code == "access-denied"
    only = FixedAccess("joe", EXAMPLES[verb.name].needs, "the test says so")
    assert isinstance(ask(Dialog(served.site, only), verb, use(verb, line), served, line), Reply)


def test_without_a_repository(served: Served, line: list[bytes], verb: AnyVerb) -> None:
    answer = ask(Dialog(served.site), verb, msgspec.structs.replace(use(verb, line), path="nowhere"), served, line)
    if verb.site_wide or verb.is_vfs or verb.name == "Repository.create":
        assert isinstance(answer, Reply)
    else:
        assert isinstance(answer, Failure)
        assert answer.fault.code == "no-such-repository"


def test_a_dry_run_of_it_changes_nothing(served: Served, line: list[bytes], verb: AnyVerb) -> None:
    before = state(served)
    request = msgspec.structs.replace(use(verb, line), flags=int(RequestFlag.CHECK_ONLY))
    answer = Dialog(served.site).ask(request)
    assert isinstance(answer, Failure if verb.is_vfs else Reply)  # Files have no dry run.
    assert state(served) == before


def test_file_level_verbs_are_refused_unless_they_are_allowed(served: Served, line: list[bytes], verb: AnyVerb) -> None:
    """With the option that allows them; and no server boasts of what it refuses."""
    assert verb.name in served.site.facts.capabilities
    served.site.allows_vfs = False
    before = state(served)
    answer = ask(Dialog(served.site), verb, use(verb, line), served, line)
    assert isinstance(answer, Failure) is verb.is_vfs
    assert (verb.name in served.site.facts.capabilities) is not verb.is_vfs
    if isinstance(answer, Failure):
        assert answer.fault.code == "access-denied"
        assert "the server runs without `--allow-vfs`" in str(named(answer.fault)["why"])
        assert state(served) == before
