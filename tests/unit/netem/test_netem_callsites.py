from __future__ import annotations

import os
import sys

import pytest

from netem.callsites import of_a_library

HERE = os.path.abspath(__file__)


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (os.__file__, True),
        (pytest.__file__, True),
        (os.path.join(os.path.dirname(sys.executable), "pytest"), True),
        ("<frozen importlib._bootstrap>", True),
        ("/usr/lib/python3/dist-packages/x.py", True),
        (HERE, False),
        ("<string>", False),
        ("<stdin>", False),
    ],
)
def test_what_is_a_library(path: str, library: bool) -> None:
    assert of_a_library(path) is library
