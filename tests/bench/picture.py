"""What was compared as a picture (SVG 1.1): round trips of each operation as bars, seconds against RTT as lines.

Bars are counts, and of a second network its slopes, as outlines over them: what they lack is what TCP adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from bench.peers.base import CLONE, PULL_ONE, PUSH_ONE

if TYPE_CHECKING:
    from bench.compare import Comparison

WIDTH, MARGIN, LEFT = 960, 20, 60
BARS_TOP, BARS_HEIGHT = 90, 260
LINES_GAP, LINES_HEIGHT = 110, 200
FOOT = 50
COLOURS = ("#c0392b", "#f39c12", "#7f8c8d", "#2471a3", "#1e8449", "#8e44ad", "#17a589")
"""One a tool, in order; ours first."""
DRAWN = (CLONE, PULL_ONE, PUSH_ONE)
"""Operations drawn as lines."""
TICKS = 5
"""Lines of a grid, about."""


def svg(found: Comparison) -> str:
    lines_top = BARS_TOP + BARS_HEIGHT + LINES_GAP
    height = lines_top + LINES_HEIGHT + FOOT
    network = found.networks[-1].name if found.networks else ""
    drawn = [operation for operation in DRAWN if operation in found.operations()] or found.operations()[:3]
    panels = {
        f"{operation}: seconds against RTT, {network}": {
            _colour(found, peer): [cost.seconds(rtt) for rtt in found.rtts]
            for (on, peer, what), cost in found.costs.items()
            if (on, what) == (network, operation)
        }
        for operation in drawn
    }
    return _drawing(height, [*_legend(found), *_bars(found), *_panels(panels, found.rtts, lines_top)])


def lines_svg(
    title: str, names: Sequence[str], rtts: Sequence[float], taken: Mapping[str, Sequence[Sequence[float]]]
) -> str:
    """Seconds against RTT: a panel for each operation of `taken`, in it a line for each name, with a point for each
    RTT."""
    parts = [_text(MARGIN, 24, title, ' font-size="15"'), *_keys(names)]
    panels = {operation: dict(zip(COLOURS, of_names, strict=False)) for operation, of_names in taken.items()}
    return _drawing(BARS_TOP + LINES_HEIGHT + FOOT, [*parts, *_panels(panels, rtts, BARS_TOP)])


def _drawing(height: float, parts: Sequence[str]) -> str:
    first = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11">'
    )
    return "\n".join([first, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


def step(most: float) -> float:
    """The distance of grid lines up to `most`: 1, 2 or 5 of some power of ten."""
    power = 1e-6
    while True:
        for factor in (1, 2, 5):
            if most / (factor * power) <= TICKS:
                return factor * power
        power *= 10


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _colour(found: Comparison, peer: str) -> str:
    return COLOURS[[each.name for each in found.peers].index(peer) % len(COLOURS)]


def _legend(found: Comparison) -> Iterator[str]:
    names = " and ".join(network.name for network in found.networks)
    rtts = ", ".join(f"{rtt * 1000:g}" for rtt in found.rtts)
    yield _text(MARGIN, 24, f"Round trips of each operation, on a link of {rtts} ms ({names})", ' font-size="15"')
    labels = [peer.label for peer in found.peers]
    yield from _keys(labels)
    x = _left_of_key(labels)
    if len(found.networks) > 1 and len(found.rtts) > 2:
        yield f'<rect x="{x}" y="40" width="12" height="12" fill="none" stroke="#222" stroke-dasharray="2"/>'
        yield _text(x + 17, 50, f"slope of time over RTT on {found.networks[-1].name}: what TCP adds is in it")


def _keys(labels: Sequence[str]) -> Iterator[str]:
    """What each colour stands for."""
    for number, label in enumerate(labels):
        x, colour = _left_of_key(labels[:number]), COLOURS[number % len(COLOURS)]
        yield f'<rect x="{x}" y="40" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 17, 50, label)


def _left_of_key(before: Sequence[str]) -> float:
    return MARGIN + sum(45.0 + 7 * len(label) for label in before)


def _grid(left: float, width: float, bottom: float, height: float, most: float, unit: str) -> Iterator[str]:
    apart = step(most)
    for number in range(int(most / apart) + 1):
        y = bottom - number * apart / most * height
        yield f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{left + width:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield _text(left - 6, y + 4, f"{number * apart:g}{unit}", ' text-anchor="end" fill="#666"')


def _bars(found: Comparison) -> Iterator[str]:
    """A group for each operation, in it a bar for each tool."""
    operations = found.operations()
    counted, sloped = (found.networks[0].name, found.networks[-1].name) if found.networks else ("", "")
    costs = list(found.costs.values())
    most = max([1.0, *(max(cost.rounds, cost.slope.rounds if cost.slope else 0) for cost in costs)])
    bottom = float(BARS_TOP + BARS_HEIGHT)
    yield from _grid(LEFT, WIDTH - LEFT - MARGIN, bottom, BARS_HEIGHT, most, "")
    wide = (WIDTH - LEFT - MARGIN) / max(1, len(operations))
    bar = wide * 0.84 / max(1, len(found.peers))
    for group, operation in enumerate(operations):
        left = LEFT + group * wide + wide * 0.08
        for number, peer in enumerate(found.peers):
            x = left + number * bar
            cost = found.costs.get((counted, peer.name, operation))
            if cost is None:
                yield _text(x + bar / 2, bottom - 3, "-", ' text-anchor="middle" fill="#999"')
                continue
            high = cost.rounds / most * BARS_HEIGHT
            title = f"<title>{escape(peer.label)}, {escape(operation)}: {cost.rounds}</title>"
            yield (
                f'<rect x="{x:.1f}" y="{bottom - high:.1f}" width="{bar * 0.9:.1f}" height="{high:.1f}" '
                f'fill="{_colour(found, peer.name)}">{title}</rect>'
            )
            real = found.costs.get((sloped, peer.name, operation)) if sloped != counted else None
            tall = max(0.0, real.slope.rounds) / most * BARS_HEIGHT if real and real.slope else 0.0
            if tall:
                yield (
                    f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{bar * 0.9:.1f}" height="{tall:.1f}" '
                    'fill="none" stroke="#222" stroke-dasharray="2"/>'
                )
            above = bottom - max(high, tall) - 3
            yield _text(x + bar * 0.45, above, str(cost.rounds), ' text-anchor="middle" font-size="9"')
        words = operation.split(", ")[0].split()
        half = (len(words) + 1) // 2
        for line, some in enumerate((words[:half], words[half:])):
            yield _text(left + wide * 0.42, bottom + 16 + 13 * line, " ".join(some), ' text-anchor="middle"')


def _panels(panels: Mapping[str, Mapping[str, Sequence[float]]], rtts: Sequence[float], top: float) -> Iterator[str]:
    """Panels beside each other: seconds against RTT by colour, of shortest runs or medians, joined."""
    wide = (WIDTH - MARGIN) / max(1, len(panels))
    for number, (title, seconds) in enumerate(panels.items()):
        yield from _panel(title, seconds, rtts, LEFT + number * wide, wide - LEFT - MARGIN, top)


def _panel(
    title: str, seconds: Mapping[str, Sequence[float]], rtts: Sequence[float], left: float, width: float, top: float
) -> Iterator[str]:
    longest = max(rtts)
    most = max([0.1, *(each for line in seconds.values() for each in line)])
    bottom = top + LINES_HEIGHT
    yield _text(left, top - 14, title, ' font-size="12"')
    yield from _grid(left, width, bottom, LINES_HEIGHT, most, " s")
    for rtt in _apart(rtts, longest * 40 / width):
        yield _text(
            left + rtt / longest * width, bottom + 16, f"{rtt * 1000:g} ms", ' text-anchor="middle" fill="#666"'
        )
    for colour, line in seconds.items():
        places = [
            (left + rtt / longest * width, bottom - each / most * LINES_HEIGHT)
            for rtt, each in zip(rtts, line, strict=True)
        ]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)


def _apart(values: Sequence[float], least: float) -> list[float]:
    """Those that are at least so far apart, from the last down."""
    kept: list[float] = []
    for value in sorted(values, reverse=True):
        if not kept or kept[-1] - value >= least:
            kept.append(value)
    return kept
