"""trace.otlp: spans as OpenTelemetry reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from traces import HOSTILE, OTHER_ID, push, read

from smartserver.trace.otlp import Kind, otlp


def value(of: dict[str, Any]) -> object:
    ((kind, found),) = of.items()
    return [value(each) for each in found["values"]] if kind == "arrayValue" else found


def attributes(of: dict[str, Any]) -> dict[str, object]:
    return {each["key"]: value(each["value"]) for each in of["attributes"]}


def resources(name: str = "project") -> list[tuple[dict[str, object], list[dict[str, Any]]]]:
    found = json.loads(otlp(read(push(name))))["resourceSpans"]
    return [(attributes(each["resource"]), each["scopeSpans"][0]["spans"]) for each in found]


def test_spans_are_below_what_they_are_part_of() -> None:
    (_, [root]), (_, own), (_, served) = resources()
    ids = {each["spanId"]: each["name"] for each in (root, *own, *served)}
    assert [(each["name"], ids.get(each["parentSpanId"]), each["kind"]) for each in (root, *own, *served)] == [
        ("git project", None, Kind.INTERNAL), ("git project", "git project", Kind.INTERNAL),
        ("git project", "git project", Kind.INTERNAL), ("plan project", "git project", Kind.INTERNAL),
        ("read project", "plan project", Kind.INTERNAL), ("TCP", "git project", Kind.INTERNAL),
        ("wait for the link", "git project", Kind.INTERNAL),
        ("Branch.tip project; Repository.open", "git project", Kind.CLIENT), ("get", "git project", Kind.CLIENT),
        ("queued", "Branch.tip project; Repository.open", Kind.SERVER),
        ("commit project", "Branch.tip project; Repository.open", Kind.SERVER),
        ("sync", "commit project", Kind.SERVER), ("in the server", "get", Kind.SERVER),
    ]  # fmt: skip


def test_the_same_file_has_the_same_ids_and_another_trace_others() -> None:
    assert otlp(read(push())) == otlp(read(push()))
    found = json.loads(otlp(read([*push(), *push(trace=OTHER_ID, process=17)])))["resourceSpans"]
    ids = [span["spanId"] for each in found for span in each["scopeSpans"][0]["spans"]]
    assert len(ids) == len(set(ids)) == 26


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    assert resources(name)[0][0]["service.name"] == f"git {name}"
