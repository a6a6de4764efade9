"""A picture of one operation as SVG 1.1. Time runs downwards, and each message is an arrow from one side to the
other."""

from __future__ import annotations

from xml.sax.saxutils import escape

from netem.counter import Counts, Message
from netem.units import plural, show_size

WIDTH, LEFT, RIGHT, TOP = 760, 150, 610, 70
PIXELS_PER_ROUND = 90
"""The height of one round trip in pixels."""
LINES_APART = 30
"""The approximate least distance in pixels between lines of the grid."""
TALLEST = 20_000
"""The greatest height in pixels. A longer operation is drawn at a smaller scale."""
COLOURS = ("#0b62a4", "#b5462f", "#3d7d3d", "#7a4d9c", "#8a6d1d")
"""The colours of connections, in turn."""


def svg(counts: Counts, rtt: float, title: str = "") -> str:
    """Return the picture of an operation as SVG. `rtt`, in seconds, sets the scale and the grid, which has a line for
    each round trip if the lines fit."""
    begun = min((message.sent for message in counts.messages), default=0.0)
    ended = max((_end(message) for message in counts.messages), default=begun)
    rounds = (ended - begun) / rtt if rtt else 1.0
    per_second = min(PIXELS_PER_ROUND / rtt if rtt else 200.0, TALLEST / max(ended - begun, 1e-9))
    height = TOP + (ended - begun) * per_second + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
        f'<text x="20" y="22" font-size="14">{escape(title)}</text>',
        f'<text x="20" y="42">{escape(_summary(counts))}</text>',
    ]
    step = max(1, round(LINES_APART / (rtt * per_second))) if rtt else 1
    for number in range(0, int(rounds) + 2 if rtt else 0, step):
        y = TOP + number * rtt * per_second
        if y < height - 20:
            parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{RIGHT + 10}" y="{y + 4:.1f}" fill="#888">{number} RTT</text>')
    for x, name in ((LEFT, "client"), (RIGHT, "server")):
        parts.append(f'<line x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{height - 20:.0f}" stroke="#444" stroke-width="2"/>')
        parts.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="middle">{name}</text>')
    parts += [_arrow(message, begun, per_second) for message in counts.messages]
    if counts.omitted:
        parts.append(f'<text x="20" y="{height - 6:.0f}">and {plural(counts.omitted, "message")} more</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def _end(message: Message) -> float:
    return message.sent if message.delivered is None else message.delivered


def _summary(counts: Counts) -> str:
    return ", ".join(
        (
            plural(counts.rounds, "round trip"),
            plural(counts.connections, "connection"),
            f"{show_size(counts.bytes_up)} up",
            f"{show_size(counts.bytes_down)} down",
        )
    )


def _arrow(message: Message, begun: float, per_second: float) -> str:
    colour = COLOURS[(message.connection - 1) % len(COLOURS)]
    start, end = (LEFT, RIGHT) if message.up else (RIGHT, LEFT)
    y1, y2 = (TOP + (at - begun) * per_second for at in (message.sent, _end(message)))
    lost = message.delivered is None
    if lost:
        end = (LEFT + RIGHT) // 2
    head = -8 if message.up else 8
    what = show_size(message.size) + (", end" if message.end else "") + (", not delivered" if lost else "")
    anchor, x = ("end", LEFT - 8) if message.up else ("start", RIGHT + 70)
    return (
        f'<g stroke="{colour}" fill="{colour}"><line x1="{start}" y1="{y1:.1f}" x2="{end}" y2="{y2:.1f}"'
        f"{' stroke-dasharray=' + chr(34) + '4' + chr(34) if lost else ''}/>"
        f'<path d="M {end} {y2:.1f} l {head} -4 l 0 8 z" stroke="none"/>'
        f'<text x="{x}" y="{y1 + 4:.1f}" text-anchor="{anchor}" stroke="none">{escape(what)}</text></g>'
    )
