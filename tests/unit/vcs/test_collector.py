from __future__ import annotations

import gc

from smartserver.vcs.collector import RARELY, rare_collections


def test_it_looks_rarely_until_the_last_context_is_left() -> None:
    before = gc.get_threshold()
    one, other = rare_collections(), rare_collections()
    with one:
        assert gc.get_threshold() == (RARELY, *before[1:])
        other.__enter__()
    assert gc.get_threshold()[0] == RARELY, "a context that was opened later is left later, too"
    other.__exit__(None, None, None)
    assert gc.get_threshold() == before
