"""The whole repository read and checked: what is damaged is named by file, byte and key, and never raised."""

from __future__ import annotations
