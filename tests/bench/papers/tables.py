"""The tables and plots of the matrix, computed without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import product
from typing import Final, NamedTuple

from bench.papers.repositories import ALL, CONFIGS, PACKINGS
from bench.papers.results import Cell
from bench.report import table

Cells = Mapping[str, Cell]

BOUND: Final = (0.1, 0.05)
"""The share, or the seconds, by which two cells may differ that count as equal: the paper's own."""

COLORS: Final = {"ours": "#0b6e99", "f6": "#d9a441", "f7": "#b5651d", "git": "#7a7a7a"}
BAR, GAP, LABEL, PANEL = 9, 7, 190, 520
"""The sizes of a plot."""


class Axes(NamedTuple):
    """The packings, places and times of a command's cells."""

    packings: Sequence[str]
    places: Sequence[str]
    times: Sequence[str]


def axes(command: str) -> Axes:
    if command == "load":
        return Axes(("disk", "memory"), ("folder",), ("syncs", "no syncs"))
    return Axes(PACKINGS, ("server", "folder"), ("cold", "hot"))


def name_of(command: str, history: str, side: str, packing: str, place: str, config: str, time: str) -> str:
    """Return the name of a cell."""
    return f"matrix {command}, {history}, {side}, {packing}, {place}, {config}, {time}"


def tables(cells: Cells, command: str, history: str) -> Iterator[str]:
    """Yield the Markdown tables of a command: the ratios of ours to Subversion's. The plot has the seconds."""
    packings, places, times = axes(command)
    for place in places:

        def cell(side: str, packing: str, config: str, time: str, place: str = place) -> Cell | None:
            return cells.get(name_of(command, history, side, packing, place, config, time))

        columns = [
            (time, config)
            for time in times
            for config in CONFIGS
            if any(cell("ours", packing, config, time) for packing in packings)
        ]
        rows = []
        for other, packing in product(("f6", "f7"), packings):
            # What we have without a size is beside Subversion's largest.
            beside = [(time, config, "fast" if config == "auto" else config) for time, config in columns]
            pairs = [(cell("ours", packing, mine, time), cell(other, packing, his, time)) for time, mine, his in beside]
            rows += _ratios(f"*ours / {other}, {packing}*", pairs)
        if rows:
            of = f"`{command}`, the {history} history" + (f", from a {place}" if len(places) > 1 else "")
            yield f"{of}:\n\n{table(['', *(f'{time}, {config}' for time, config in columns)], rows)}\n"


def _ratios(label: str, pairs: Sequence[tuple[Cell | None, Cell | None]]) -> list[list[str]]:
    """Return one row, or none if it would be empty."""
    shown = ["" if one is None or other is None else f"{one.values[0] / other.values[0]:.2f}" for one, other in pairs]
    return [[label, *shown]] if any(shown) else []


def auto(cells: Cells) -> tuple[int, list[str]]:
    """Count the cells read with `auto` caches, and name those slower than the best fixed size by more than `BOUND`."""
    count, over = 0, []
    for name, cell in cells.items():
        if not (name.startswith("matrix ") and ", ours, " in name and ", server, auto, " in name):
            continue
        fixed = {config: cells.get(name.replace(", auto, ", f", {config}, ")) for config in CONFIGS if config != "auto"}
        seconds = {config: found.values[0] for config, found in fixed.items() if found is not None}
        if seconds:
            count += 1
            best = min(seconds, key=seconds.__getitem__)
            took, least = cell.values[0], seconds[best]
            if took > least + max(BOUND[0] * least, BOUND[1]):
                over.append(f"{name.removeprefix('matrix ')}: {took:.2f} s; {best} {least:.2f} s")
    return count, over


Group = tuple[str, Sequence[tuple[str, float]]]
"""A label, and bars: a side and its seconds."""


def panels(cells: Cells, command: str, histories: Sequence[str]) -> dict[str, list[Group]]:
    """Return the groups of bars in a plot of a command, by history and place."""
    packings, places, times = axes(command)
    found: dict[str, list[Group]] = {}
    for history in histories:
        for place in places:
            for packing in packings:
                for time in times:
                    for config in CONFIGS:
                        names = {side: name_of(command, history, side, packing, place, config, time) for side in ALL}
                        bars = [(side, cells[name].values[0]) for side, name in names.items() if name in cells]
                        if bars:
                            found.setdefault(f"{history}, {place}", []).append((f"{packing}, {time}, {config}", bars))
    return found


def plot(title: str, parts: Mapping[str, Sequence[Group]]) -> str:
    """Return an SVG of panels side by side, each of groups of bars, one below the other."""
    shapes = [f'<text x="4" y="16" font-size="14">{escape(title)}: seconds</text>']
    for number, (side, color) in enumerate(COLORS.items()):
        shapes.append(f'<text x="{LABEL + number * 60}" y="16" fill="{color}">{side}</text>')
    height = 0
    for number, (name, groups) in enumerate(parts.items()):
        left, y = number * PANEL, 44
        scale = (PANEL - LABEL - 50) / max((seconds for _, bars in groups for _, seconds in bars), default=1)
        shapes.append(f'<text x="{left + LABEL}" y="36" font-weight="bold">{escape(name)}</text>')
        for label, bars in groups:
            shapes.append(f'<text x="{left + LABEL - 6}" y="{y + BAR}" text-anchor="end">{escape(label)}</text>')
            for side, seconds in bars:
                x, wide = left + LABEL, max(seconds * scale, 0.5)
                shapes.append(f'<rect x="{x}" y="{y}" width="{wide:.1f}" height="{BAR - 1}" fill="{COLORS[side]}"/>')
                shapes.append(f'<text x="{x + wide + 3:.1f}" y="{y + BAR - 1}">{seconds:.2f}</text>')
                y += BAR
            y += GAP
        height = max(height, y)
    box = f'width="{max(len(parts), 1) * PANEL}" height="{height}"'
    style = 'font-family="sans-serif" font-size="9"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style}>\n<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, *shapes, "</svg>\n"])
