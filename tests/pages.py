"""The content of a page: its scripts and styles, and every attribute, as a browser reads it."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser


class PageText(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        """The text of each script and style, by its tag and type."""
        self.attributes: list[tuple[str, str | None]] = []
        self.policy = ""
        self._within = ""
        self.feed(page.decode())
        self.close()

    @property
    def block(self) -> str:
        """Return the JSON of the trace."""
        return self.texts["script application/json"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.attributes += attrs
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        self._within = ""
        if tag in ("script", "style"):
            self._within = f"{tag} {given.get('type') or ''}".strip()
            assert self._within not in self.texts, "one of each"
            self.texts[self._within] = ""

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within:
            self.texts[self._within] += data


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
