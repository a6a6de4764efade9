"""server.access: who may do what."""

from __future__ import annotations

import pytest
from builders import MAIN
from dialogs import Dialog, Served, message

from smartserver.errors import AccessDenied
from smartserver.server.access import EVERYTHING, Anonymous, FixedAccess, anonymous, on_streams
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import Permission
from smartserver.wire.messages import Failure

READ, WRITE, CREATE, FORCE, DELETE, VFS, ADMIN = Permission


@pytest.mark.parametrize(
    ("policy", "local", "given"),
    [
        (Anonymous.NONE, True, set()),
        (Anonymous.NONE, False, set()),
        (Anonymous.READ, True, {READ, VFS}),
        (Anonymous.READ, False, {READ}),
        (Anonymous.WRITE, True, {READ, WRITE, CREATE, FORCE, DELETE, VFS, ADMIN}),
        (Anonymous.WRITE, False, {READ, WRITE, CREATE}),
    ],
)
def test_users_without_a_name(policy: Anonymous, local: bool, given: set[Permission]) -> None:
    access = anonymous(policy, local=local)
    assert access.user == "anonymous"
    for permission in Permission:
        if permission in given:
            access.require(permission, "project")
            access.require(permission, "project", b"refs/heads/main")
        else:
            with pytest.raises(AccessDenied):
                access.require(permission, "project")
    # Whoever is refused is told what to do about it.
    assert bool(access.why) is (given != EVERYTHING)


@pytest.mark.parametrize("policy", [Anonymous.READ, Anonymous.WRITE])
def test_why_files_are_not_given(policy: Anonymous) -> None:
    """Another option of the server would not help."""
    with pytest.raises(AccessDenied) as denied:
        anonymous(policy, local=False).require(VFS, "project")
    assert str(denied.value) == "not allowed: vfs: anonymous users may do that from this machine only"
    with pytest.raises(AccessDenied) as denied:
        FixedAccess("jane", frozenset({READ}), "the test says so").require(VFS, "project")
    assert denied.value.why == "the test says so"


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (None, EVERYTHING),
        (Anonymous.NONE, set()),
        (Anonymous.READ, {READ}),
        (Anonymous.WRITE, {READ, WRITE, CREATE}),
    ],
)
def test_a_policy_means_the_same_on_streams(policy: Anonymous | None, given: set[Permission]) -> None:
    """It means the same as for a client on another machine, which the other end of a pipe may be on."""
    access = on_streams("jane", policy)
    assert (access.user, access.permissions) == ("jane", given)
    if policy is not None:
        assert access.permissions == anonymous(policy, local=False).permissions
        with pytest.raises(AccessDenied, match="--anonymous"):
            access.require(FORCE, "project")


@pytest.mark.parametrize(
    ("ref", "what"), [(b"", "force"), (b"refs/heads/main", "force refs/heads/main"), (b"a\xff", "force a\\xff")]
)
def test_a_refusal_says_what_and_why(ref: bytes, what: str) -> None:
    with pytest.raises(AccessDenied) as denied:
        FixedAccess("jane", frozenset({READ}), "the test says so").require(FORCE, "project", ref)
    assert (denied.value.what, denied.value.why) == (what, "the test says so")


@pytest.mark.parametrize(
    ("given", "told"),
    [({WRITE}, "access-denied"), ({READ}, "access-denied"), ({READ, WRITE}, "diverged")],
    ids=["write", "read", "read and write"],
)
def test_the_state_comes_with_a_refusal_for_who_may_read(given: set[Permission], told: str) -> None:
    """A user who may only write is told nothing of what there is: neither why a push would fail, nor any ref."""
    served = Served()
    line = served.history.line(2)
    side = served.history.line(1, line[0], "side")
    served.push([*line, *side], {MAIN: line[1], b"refs/heads/secret": side[0]})
    dialog = Dialog(served.site, FixedAccess("jane", frozenset(given), "the test says so"))
    answer = dialog.ask(message((branch_set_last_revision, SetLastRevisionRequest(MAIN, side[0]))))
    assert isinstance(answer, Failure)
    assert answer.fault.code == told
    assert (answer.state is not None) is (READ in given)
    assert served.refs()[MAIN] == line[1]
