"""verbs.map_update: each way an entry may change on each state of it, for whom, and what becomes of the others."""

from __future__ import annotations

import pytest
from builders import GIT, MAIN
from verb_context import NotedContext, Project

from smartserver.errors import (
    AccessDenied,
    InvalidName,
    MissingRevision,
    NoSuchBranch,
    StaleEntry,
    WrongMapKind,
)
from smartserver.records.model import Tip
from smartserver.records.system import EntryRight, system_of
from smartserver.store.transaction import Transaction
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.declare import Permission
from smartserver.verbs.map_update import (
    EntryChange,
    EntryOutcome,
    How,
    MapKind,
    MapUpdateRequest,
    MapUpdateResult,
    Verdict,
    map_update,
)

TOPIC = b"refs/heads/topic"
IDS, OPAQUE = MapKind.IDS, MapKind.OPAQUE
ADD, EQUAL, SET = How.ADD, How.EQUAL, How.SET
DONE, UNCHANGED, CONFLICT = Verdict.DONE, Verdict.UNCHANGED, Verdict.CONFLICT
OLD, NEW, OTHER = b"old", b"new", b"other"
WRITE, FORCE = Permission.WRITE, Permission.FORCE


@pytest.fixture
def project() -> Project:
    """MAIN has a tag and a configuration, TOPIC a tag of that name; one signature belongs to nobody."""
    project = Project()
    line = project.history.line(2)
    project.push(line, {MAIN: line[1], TOPIC: line[0]})

    def before(transaction: Transaction) -> None:
        transaction.set_map("tags", "ids", MAIN + b"\0v1", OLD)
        transaction.set_map("tags", "ids", TOPIC + b"\0v1", OTHER)
        transaction.set_map("config", "opaque", MAIN + b"\0", b"a = b")
        transaction.set_map("signatures", "opaque", b"v1", b"signed")

    project.push([], {}, before)
    return project


def update(
    context: NotedContext,
    *entries: EntryChange,
    of: bytes | None = MAIN,
    name: str = "tags",
    kind: MapKind = IDS,
    strict: bool = False,
) -> MapUpdateResult:
    return map_update.function(context, MapUpdateRequest(name, kind, list(entries), of, strict))


def verdict(how: How, old: bytes | None, value: bytes | None, expected: bytes | None) -> Verdict:
    """The rules in other words than the code's."""
    if old == value:
        return UNCHANGED
    allowed = {SET: True, ADD: old is None, EQUAL: old == expected}
    return DONE if allowed[how] else CONFLICT


@pytest.mark.parametrize("expected", [None, OLD, OTHER])
@pytest.mark.parametrize("value", [None, OLD, NEW])
@pytest.mark.parametrize("key", [b"v1", b"v2"], ids=["present", "absent"])
@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("strict", [False, True], ids=["told", "strict"])
def test_every_way_on_every_state(
    project: Project, how: How, key: bytes, value: bytes | None, expected: bytes | None, strict: bool
) -> None:
    context = project.context()
    old = OLD if key == b"v1" else None
    said = verdict(how, old, value, expected)
    change = EntryChange(key, value, how, expected)
    if said is CONFLICT and strict:
        with pytest.raises(StaleEntry) as stale:
            update(context, change, strict=True)
        assert (stale.value.map, stale.value.key) == ("tags", key)
    else:
        assert update(context, change, strict=strict).entries == [EntryOutcome(said, old)]
    assert context.transaction.entry("tags", MAIN + b"\0" + key) == (value if said is DONE else old)
    assert context.transaction.entry("tags", TOPIC + b"\0v1") == OTHER
    needed = WRITE if old is None else FORCE
    assert context.asked == ([(needed, MAIN + b"\0tags/" + key)] if said is DONE else [])
    assert context.transaction.remembered is (said is UNCHANGED and how is SET)
    assert bool(context.transaction.entries.get("tags")) is (said is DONE)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (EntryChange(b"v1", NEW), StaleEntry),
        (EntryChange(b"v1", NEW, SET), AccessDenied),
        (EntryChange(b"a\0b", NEW), InvalidName),
        (EntryChange(b"v3", b""), InvalidName),
        (EntryChange(b"v3", b"n" * 1025), InvalidName),
    ],
)
def test_a_call_that_is_refused_has_changed_nothing(
    project: Project, last: EntryChange, error: type[Exception]
) -> None:
    context = project.context(denied=[FORCE])
    with pytest.raises(error):
        update(context, EntryChange(b"v2", NEW), last, strict=True)
    assert context.transaction.entries == {}
    assert update(context, EntryChange(b"v2", NEW)).entries == [EntryOutcome(DONE)]


def test_what_is_opaque_needs_no_force_and_may_be_anything(project: Project) -> None:
    context = project.context(denied=[FORCE])
    for value in (b"", b"n" * 65_536, None):
        assert update(context, EntryChange(b"", value, SET), name="config", kind=OPAQUE).entries[0].verdict is DONE
    assert context.transaction.entries == {"config": {MAIN + b"\0": None}}


def test_an_entry_that_belongs_to_nobody(project: Project) -> None:
    context = project.context()
    result = update(context, EntryChange(b"v1", NEW), EntryChange(b"v2", NEW), of=None, name="signatures", kind=OPAQUE)
    assert result.entries == [EntryOutcome(CONFLICT, b"signed"), EntryOutcome(DONE)]
    assert context.asked == [(WRITE, b"\0signatures/v2")]
    with pytest.raises(InvalidName):
        update(context, EntryChange(b"", NEW), of=None, name="signatures", kind=OPAQUE)


@pytest.mark.parametrize("name", ["notes", "tags"])
def test_the_kind_of_a_map_is_what_its_system_says(project: Project, name: str) -> None:
    """Whoever makes the first entry of a map, or made one of the wrong kind before, does not decide that."""
    context = project.context()
    asked = IDS if name == "notes" else OPAQUE
    of = None if name == "notes" else MAIN
    with pytest.raises(WrongMapKind) as wrong:
        update(context, EntryChange(b"k", NEW), of=of, name=name, kind=asked)
    right = OPAQUE if asked is IDS else IDS
    assert (wrong.value.map, wrong.value.kind, wrong.value.asked) == (name, right, asked)
    context.transaction.declared[name] = asked
    assert update(context, EntryChange(b"k", NEW), of=of, name=name, kind=right).entries == [EntryOutcome(DONE)]


@pytest.mark.parametrize(
    ("name", "of", "why"),
    [
        ("junk", None, "has no such map; it has config, notes, signatures, tags"),
        ("junk", MAIN, "has no such map"),
        ("a\0b", None, "has no such map"),
        ("tags", None, "belongs to a ref"),
        ("notes", MAIN, "belongs to no ref"),
    ],
)
def test_maps_that_the_system_has_not(project: Project, name: str, of: bytes | None, why: str) -> None:
    context = project.context()
    with pytest.raises(InvalidName, match=why):
        update(context, EntryChange(b"k", NEW), of=of, name=name, kind=OPAQUE)
    assert not context.transaction.changed


def test_a_revision_that_an_entry_is_about_must_be_stored_or_come(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_of(GIT), "entry_revision", lambda table, key, value: value)
    new = project.history.line(3)[2]
    change = MapUpdateRequest("notes", OPAQUE, [EntryChange(b"k", new)])
    context = project.context()
    with pytest.raises(MissingRevision):
        map_update.function(context, change)
    assert context.asked == []
    assert map_update.function(project.context([new]), change).entries == [EntryOutcome(DONE)]
    assert map_update.function(project.context(), MapUpdateRequest("notes", OPAQUE, [EntryChange(b"k", None)])).entries


@pytest.mark.parametrize("right", list(EntryRight))
def test_the_system_says_what_a_change_needs(
    project: Project, right: EntryRight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_of(GIT), "entry_rights", lambda stored, table, changes: [right] * len(changes))
    needed = Permission(right.value)
    context = project.context(denied=[needed])
    with pytest.raises(AccessDenied):
        update(context, EntryChange(b"k", NEW), of=None, name="notes", kind=OPAQUE)
    assert context.asked == [(needed, b"\0notes/k")]


def test_the_ref_must_be_there_and_may_come_with_the_request(project: Project) -> None:
    context = project.context()
    with pytest.raises(NoSuchBranch) as none:
        update(context, EntryChange(b"k", NEW), of=b"refs/heads/absent")
    assert none.value.ref == b"refs/heads/absent"
    context.transaction.set_ref(b"refs/heads/absent", (Tip(next(iter(project.history.parents))),))
    assert update(context, EntryChange(b"k", NEW), of=b"refs/heads/absent").entries[0].verdict is DONE


def test_what_belongs_to_a_ref_goes_with_it(project: Project) -> None:
    context = project.context()
    update(context, EntryChange(b"v9", NEW))
    branch_delete.function(context, BranchDeleteRequest(TOPIC))
    assert context.transaction.entries == {"tags": {MAIN + b"\0v9": NEW, TOPIC + b"\0v1": None}}
    context.transaction.remove_entries(MAIN)  # What this request set, too.
    gone = {"tags": {MAIN + b"\0v1": None, TOPIC + b"\0v1": None}, "config": {MAIN + b"\0": None}}
    assert context.transaction.entries == gone
    context = project.context()
    context.transaction.remove_entries(MAIN)
    context.transaction.remove_entries(b"refs/heads/mai")
    assert context.transaction.entries == {"tags": {MAIN + b"\0v1": None}, "config": {MAIN + b"\0": None}}
