"""A few of the steps of brz_two_users.py, which runs as many as it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from brz_two_users import Model
from git_sides import Served

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_two_users(served: Served, tmp_path: Path) -> None:
    model = Model(tmp_path, served, 1)
    for _ in range(12):
        assert model.change(), "\n".join(model.different)
        model.read()
    assert not model.different, "\n".join(model.different)
