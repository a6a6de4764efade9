"""`logfmt`: the fields of a log line as `name=value`, which no value from a client can forge."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Field = str | int | float | Sequence[str]

_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,\[\]-]+")


def logfmt(fields: Mapping[str, Field]) -> str:
    """Return the fields in their order. A value with characters that names and paths do not have becomes a JSON
    string."""
    return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())


def _quoted(value: Field) -> str:
    text = str(value) if isinstance(value, (str, int, float)) else ",".join(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
