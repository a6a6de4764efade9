"""A few of the steps of hg_two_users.py, which runs as many as it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_sides import Served
from hg_two_users import run

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_two_users(served: Served, tmp_path: Path) -> None:
    assert run(tmp_path, served, 36, 60) > 0
