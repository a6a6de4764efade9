"""plugins.breezy.remote, plugins.breezy.place: the branch a URL leads to, or into."""

from __future__ import annotations

import pytest
from breezy.errors import NotBranchError

from smartserver.plugins.breezy.place import State
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.transport import HpssTransport


@pytest.mark.parametrize("inside", [False, True])
def test_the_same_branch_for_one_revision_may_be_led_into_as_before(inside: bool) -> None:
    again = Remote(HpssTransport("hpss://remote.example.org/trunk/folder"), inside=inside).for_one()
    again.seen = state = State("trunk", "folder", b"r1")
    if inside:
        assert again.state() is state
        return
    with pytest.raises(NotBranchError):
        again.state()
