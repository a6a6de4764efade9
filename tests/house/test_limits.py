"""A limit is defined once, in the lowest layer that all its users may import; without such a layer, copies agree."""

from __future__ import annotations

from smartserver.records import limits as of_records
from smartserver.verbs import fields, repository_pull
from smartserver.wire import limits as of_wire


def test_verbs_and_the_wire() -> None:
    """`verbs` and `wire` agree: neither may import the other."""
    assert repository_pull.MAX_HAVES == of_wire.MAX_HAVES
    assert fields.MAX_IDS == of_wire.MAX_ABSENT


def test_verbs_and_records() -> None:
    """`verbs` and `records` agree: of `records`, `verbs` may import only `model`."""
    assert fields.MAX_NAME == of_records.MAX_NAME == of_records.MAX_ID


def test_a_client_remembers_no_more_tips_than_it_may_send() -> None:
    assert of_wire.MAX_TIPS_KNOWN <= of_wire.MAX_HAVES
