"""server.request_meters: requests by verb and outcome."""

from __future__ import annotations

from dialogs import message
from session_calls import INSERT, PULL, set_ref

from smartserver.meters import NOTHING
from smartserver.server.header import RequestHeader
from smartserver.server.request_log import DONE, EndedRequest
from smartserver.server.request_meters import BUCKETS, NO_VERB, Histogram, RequestMeters
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.wire.messages import RequestFlag


def ended(*calls: tuple[AnyVerb, Arguments], lasted: float = 0.0, outcomes: tuple[str, ...] = (DONE,)) -> EndedRequest:
    header = RequestHeader(message(*calls), calls, RequestFlag.NONE) if calls else None
    return EndedRequest("192.0.2.7:1", "anna", "", header, 1, 2, lasted, 0, 0, NOTHING, outcomes)


def test_a_request_counts_for_each_of_its_verbs_once() -> None:
    meters = RequestMeters()
    meters.add(ended(PULL, lasted=0.5))
    meters.add(ended(INSERT, set_ref(bytes(20)), set_ref(bytes(20)), lasted=2, outcomes=(DONE, DONE, "diverged")))
    meters.add(ended(PULL, lasted=0.25, outcomes=("no-such-repository",)))
    meters.add(ended(outcomes=("unsupported",)))
    counts = meters.counts(3)
    assert counts.outcomes == {
        "Repository.pull": {DONE: 1, "no-such-repository": 1},
        "Repository.insert_pack": {DONE: 1},
        "Branch.set_last_revision": {"diverged": 1},
        NO_VERB: {"unsupported": 1},
    }
    assert {verb: each.total for verb, each in counts.seconds.items()} == {
        "Repository.pull": 0.75,
        "Repository.insert_pack": 2,
        "Branch.set_last_revision": 2,
        NO_VERB: 0,
    }


def test_a_bucket_has_all_that_took_no_longer() -> None:
    histogram = Histogram()
    for seconds in (0.0, BUCKETS[0], 0.3, 1000.0):
        histogram.add(seconds)
    found = dict(histogram.buckets())
    assert list(found) == [*map(str, BUCKETS), "+Inf"]
    assert (found["0.001"], found["0.25"], found["0.5"], found["300.0"], found["+Inf"]) == (2, 2, 3, 3, 4)
