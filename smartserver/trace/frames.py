"""`FrameLog`: shows the events of a connection, decoded. Tokens and the content of files and bodies are not shown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, End, Error, Event, Progress, Reply, Request
from smartserver.wire.messages import Request as RequestMessage
from smartserver.wire.messages import decode_failure, decode_progress, decode_reply, decode_request, raw

DECODERS: dict[type, Callable[[bytes], msgspec.Struct]] = {
    Request: decode_request,
    Reply: decode_reply,
    Error: decode_failure,
    Progress: decode_progress,
}

SECRET = ("token",)
"""The extras of a request that are not shown."""


class FrameLog:
    """Shows each event; implements `wire.observer.Observer`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._parts: dict[tuple[str, int], list[bytes]] = {}
        self._of_files: set[int] = set()
        """The requests of file-level calls, whose arguments and results contain the content of files."""

    def connecting(self) -> None:
        """Show that a connection is going to be opened."""
        self._parts.clear()
        self._of_files.clear()
        self._say("hpss: connecting")

    def sent(self, event: Event, size: int) -> None:
        """Show an event that is going to be sent."""
        self._show("->", event, size)

    def received(self, event: Event, size: int) -> None:
        """Show an event that was received."""
        self._show("<-", event, size)

    def _show(self, way: str, event: Event, size: int) -> None:
        request = getattr(event, "id", 0)
        name = type(event).__name__ + (f" {request}" if request else "")
        told = self._told(way, event, request)
        self._say(f"hpss: {way} {name}, {size} B{': ' if told else ''}{told}")

    def _told(self, way: str, event: Event, request: int) -> str:
        match event:
            case Request() | Reply() | Error():
                parts = self._parts.setdefault((way, request), [])
                parts.append(event.payload)
                if event.more:
                    return "more follows"
                return self._message(event, b"".join(self._parts.pop((way, request))), request)
            case Body():
                return f"{len(event.chunk)} bytes"
            case End():
                return f"{event.segments} segments, {event.size} bytes"
            case Progress():
                return self._message(event, event.payload, request)
        return ""

    def _message(self, event: Event, payload: bytes, request: int) -> str:
        """Return a message as JSON, or a text about a message that cannot be decoded."""
        try:
            message = DECODERS[type(event)](payload)
            if isinstance(message, RequestMessage):
                shown = {name: raw("not shown") if name in SECRET else value for name, value in message.extras.items()}
                message = msgspec.structs.replace(message, extras=shown)
                if any("." not in call.verb for call in message.calls):
                    self._of_files.add(request)
            built = msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=_raw)
            return msgspec.json.encode(_plain(built, is_content=request in self._of_files)).decode()
        except (RemoteProtocolError, ValueError) as error:  # The client itself reports the error.
            return f"{len(payload)} bytes that cannot be shown: {error}"


def _raw(value: object) -> object:
    return msgspec.msgpack.decode(value) if isinstance(value, msgspec.Raw) else repr(value)


def _plain(value: object, *, is_content: bool) -> object:
    """Return a value for JSON. Bytes become text if they are printable, else hex digits, or only their number if
    `is_content`."""
    match value:
        case bytes():
            if is_content:
                return f"{len(value)} bytes"
            text = value.decode("ascii", "replace")
            return text if text.isascii() and text.isprintable() else value.hex()
        case dict():
            return {
                str(_plain(key, is_content=False)): _plain(each, is_content=is_content) for key, each in value.items()
            }
        case list() | tuple():
            return [_plain(each, is_content=is_content) for each in value]
    return value
