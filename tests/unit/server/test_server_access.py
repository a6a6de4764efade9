from __future__ import annotations

import pytest

from smartserver.errors import AccessDenied
from smartserver.server.access import EVERYTHING, Anonymous, anonymous, invoking_user
from smartserver.verbs.declare import Permission

R, W, C, F, D = Permission.READ, Permission.WRITE, Permission.CREATE, Permission.FORCE, Permission.DELETE

MATRIX = [
    (Anonymous.NONE, True, set(), "none"),
    (Anonymous.NONE, False, set(), "none"),
    (Anonymous.READ, True, {R}, "--anonymous write"),
    (Anonymous.READ, False, {R}, "--anonymous write"),
    (Anonymous.WRITE, True, {R, W, C, F, D}, ""),
    (Anonymous.WRITE, False, {R, W, C}, "from this machine only"),
]


@pytest.mark.parametrize(("policy", "local", "given", "why"), MATRIX)
def test_what_nobody_in_particular_may_do(policy: Anonymous, local: bool, given: set[Permission], why: str) -> None:
    access = anonymous(policy, local=local)
    assert access.user == "anonymous"
    for permission in Permission:
        if permission in given:
            access.require(permission, b"refs/heads/x")
            continue
        with pytest.raises(AccessDenied) as caught:
            access.require(permission, b"refs/heads/x")
        assert caught.value.what == f"{permission.value} refs/heads/x"
        assert why in caught.value.why


def test_who_started_the_server_may_do_what_the_file_system_lets_them() -> None:
    access = invoking_user("joe")
    assert (access.user, access.permissions) == ("joe", EVERYTHING)
    for permission in Permission:
        access.require(permission)


def test_a_refusal_names_a_ref_in_any_bytes() -> None:
    with pytest.raises(AccessDenied) as caught:
        anonymous(Anonymous.READ, local=True).require(Permission.WRITE, b"refs/\xff")
    assert caught.value.what == "write refs/\\xff"
    with pytest.raises(AccessDenied) as caught:
        anonymous(Anonymous.READ, local=True).require(Permission.WRITE)
    assert caught.value.what == "write"
