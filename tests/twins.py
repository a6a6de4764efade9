"""Tests of both forms of a part: the native one and Python's, which is the reference (`records.native`)."""

from __future__ import annotations

import importlib

import pytest
from needs import needs

from smartserver.records.native import PARTS, native


def both(module: str, name: str, *, indirect: bool = False) -> pytest.MarkDecorator:
    """Run a test with each form of a part of a module, as its argument `part`, or (`indirect`) as the fixture's."""
    importlib.import_module(module)
    python, native = PARTS[name]
    forms = [pytest.param(native, id="native", marks=needs("native parts")), pytest.param(python, id="python")]
    return pytest.mark.parametrize("part", forms, indirect=indirect)


FORMS = [pytest.param("native", marks=needs("native parts")), "python"]
"""The provers of segments: parameters of the fixture `proving`."""

IN_PYTHON = pytest.mark.parametrize("proving", ["python"], indirect=True)
"""Marks a test that looks at the prover in Python."""


def prove_in_python(patched: pytest.MonkeyPatch) -> None:
    """Make Python prove all segments."""
    patched.setattr("smartserver.store.native.native", lambda name: None if name == "Prover" else native(name))
