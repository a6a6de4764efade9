"""How the limits hang together, and with those that other packages must state for themselves."""

from __future__ import annotations

import ast
import inspect
import itertools

from smartserver.verbs import fields, repository_pull
from smartserver.wire import frames, limits


def test_each_says_where_it_comes_from() -> None:
    body = ast.parse(inspect.getsource(limits)).body
    after = dict(itertools.pairwise(body))
    for node in body:
        if isinstance(node, ast.Assign) and node.targets[0].id not in ("KIB", "MIB"):  # type: ignore[attr-defined]
            reason = after.get(node)
            assert isinstance(reason, ast.Expr), ast.unparse(node)
            assert isinstance(reason.value, ast.Constant), ast.unparse(node)
            assert len(str(reason.value.value)) > 40, ast.unparse(node)


def test_frames_fit_their_fields() -> None:
    assert limits.MAX_FRAME < 1 << 32
    assert limits.PIECE % limits.MAX_FRAME == 0
    assert max(most for _, most in frames.SIZES.values()) == limits.MAX_FRAME
    assert set(frames.SIZES) == set(frames.FrameType)
    assert max(frames.FrameType) < frames.IGNORED_FROM


def test_order() -> None:
    assert limits.INITIAL_WINDOW < limits.RECEIVE_CHUNK <= limits.MAX_FRAME < limits.MAX_MESSAGE
    assert limits.PING_INTERVAL < limits.IDLE_TIMEOUT < limits.KEEP_IDLE


def test_verbs_state_the_same_limits() -> None:
    """`verbs` may not import `wire`."""
    assert repository_pull.MAX_HAVES == limits.MAX_HAVES
    assert fields.MAX_IDS == limits.MAX_ABSENT
