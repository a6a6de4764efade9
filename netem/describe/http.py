"""The describer of HTTP/1.1: the request line, or the status line."""

from __future__ import annotations

import re

from netem.describe.base import register

REQUEST = re.compile(rb"([A-Z]{3,20} [^ \r\n]+) HTTP/1\.[01]\r?\n")
STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9][^\r\n]*)\r?\n")


@register
def describe_http(content: bytes) -> str:
    """Return the request or status of an HTTP message, as `GET /items/3` or `200 OK`; empty if the message is not
    HTTP."""
    found = REQUEST.match(content) or STATUS.match(content)
    return "" if found is None else found[1].decode("latin-1").rstrip()
