"""Finds the pages of the two maps, and the texts, that a tree has and its parents' trees do not have.

The rule of this file: a page is introduced when no present parent's tree reaches it. A difference is a generator that
yields the keys of pages it needs next, so that the pages of many revisions are read together. Rows of leaves are read
and not checked: `vcs.bzr.pages` checks a leaf from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Final, NamedTuple

from smartserver.records.model import Key, made
from smartserver.vcs.bzr.changes import other_items
from smartserver.vcs.bzr.pages import is_node, leaf_head, read_node
from smartserver.vcs.patterns import compile_pattern

Node = tuple[bytes, Key]
"""A search prefix and the page that holds all keys under it."""

Nodes = list[Node]

Asking = Generator[Collection[Key], None, None]


_CHILD = 150
"""Bytes of memory for each child of a page, besides the text of the page."""


# `.` matches faster than a class of bytes. An item's key, before the NUL, is not looked at.
_ROWS: Final = compile_pattern(
    rb"\0(?:7\nfile|4\ndir|5\nsymlink|5\ntree): (.++)\n(.*+)\n(.*+)\n(.++)\n(?:([0-9a-f]{40})\n([0-9]++)\n[YN]\n)?"
)

Row = tuple[bytes, ...]
"""The fields of a `TreeEntry`."""


class TreeEntry(NamedTuple):
    """A file, folder or link of a tree. `sha1` and `size` are empty unless it is a file."""

    file_id: bytes
    parent_id: bytes
    name: bytes
    revision: bytes
    """The revision that changed the entry last. The file id and this revision are the key of its text."""
    sha1: bytes
    size: bytes
    """The size in decimal digits."""


def rows(leaf: bytes) -> list[Row]:
    """Return all items of a leaf of `id_to_entry`."""
    head = leaf_head(leaf)
    found: list[Row] = _ROWS.findall(leaf, head.end)
    if len(found) != head.items:
        raise ValueError(f"cannot be read as a leaf: it says {head.items} and has {len(found)}")
    return found


def differing(new: bytes, old: bytes) -> tuple[list[Row], list[Row]]:
    """Return the items that only the new leaf and only the old leaf has. Each list may include a few items that both
    have."""
    now, then = other_items(new, leaf_head(new).end, old, leaf_head(old).end)
    found, before = _ROWS.findall(now), _ROWS.findall(then)
    if (len(found), len(before)) == (now.count(b"\0"), then.count(b"\0")):
        return found, before
    return rows(new), rows(old)


class MapPage:
    """A page of a map. An inner page is parsed at once, the items of a leaf only when they are read."""

    __slots__ = ("children", "size", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.children: dict[bytes, Key] | None = None
        """The children of an inner page; None for a leaf."""
        if is_node(text):
            prefix, below = read_node(text)[1:]
            self.children = {prefix + place: key for place, key in below.items()}
        else:
            leaf_head(text)
        self.size = len(text) + _CHILD * len(self.children or ())
        """The approximate number of bytes in memory."""

    @property
    def rows(self) -> list[Row]:
        """The items of a leaf of `id_to_entry`, parsed each time, because they take ten times the bytes of the text."""
        return rows(self.text)


class NewPage(NamedTuple):
    """A page that was introduced, and the pages at its place in the first two parents' trees."""

    key: Key
    candidates: list[Key]


class NewText(NamedTuple):
    """A text that was introduced, and the revisions of the same file in the first two parents' trees."""

    entry: TreeEntry
    candidates: list[bytes]


class Difference:
    """The pages and texts that one tree introduced. `compare` fills it."""

    def __init__(self, pages: dict[Key, MapPage]) -> None:
        """`pages`: the pages read so far. When a generator that has requested a page is resumed, the page must be in
        `pages`."""
        self._pages = pages
        self.pages: list[NewPage] = []
        self.texts: list[NewText] = []

    def compare(self, new: Key, olds: Sequence[Key], *, entries: bool) -> Asking:
        """Compare a map with the maps of the parents, each given by its root. `entries`: True if the map is
        `id_to_entry`."""
        if new in olds:
            return
        todo: list[tuple[bytes, Key, list[Nodes]]] = [(b"", new, [[(b"", old)] for old in olds])]
        while todo:
            there = [node[1] for _, _, before in todo for nodes in before for node in nodes]
            yield from self._need([key for _, key, _ in todo], there)
            level, todo = todo, []
            for prefix, key, before in level:
                below = self._pages[key].children
                if below is None:
                    yield from self._leaf(prefix, key, before, entries=entries)
                    continue
                common = _common(min(below), max(below))
                passed: set[Key] = set()
                under: list[Nodes] = []
                for nodes in before:
                    reached = yield from self._narrow(nodes, common, passed)
                    under.append((yield from self._open(reached, passed)))
                if key in passed:
                    continue
                self.pages.append(made(NewPage, (key, _at_place(prefix, key, before))))
                for deeper, child in below.items():
                    if child not in passed:
                        nearer: list[Nodes] = []
                        for nodes in under:
                            nearer.append((yield from self._narrow(nodes, deeper, passed)))  # noqa: PERF401
                        if child not in passed:
                            todo.append((deeper, child, nearer))

    def _leaf(self, prefix: bytes, key: Key, before: list[Nodes], *, entries: bool) -> Asking:
        passed: set[Key] = set()
        leaves: list[list[MapPage]] = []
        for nodes in before:
            reached = yield from self._narrow(nodes, prefix, passed)
            found = []
            while reached:
                yield from self._need([page for _, page in reached])
                found += [self._pages[page] for _, page in reached if self._pages[page].children is None]
                inner = [node for node in reached if self._pages[node[1]].children is not None]
                reached = yield from self._open(inner, passed)
            leaves.append(found)
        if key in passed:
            return
        self.pages.append(made(NewPage, (key, _at_place(prefix, key, before))))
        if entries:
            self._compare_rows(self._pages[key], leaves)

    def _compare_rows(self, new: MapPage, olds: list[list[MapPage]]) -> None:
        changed: set[Row] | None = None
        before: list[dict[bytes, bytes]] = []
        for pages in olds:
            if len(pages) == 1:
                now, then = differing(new.text, pages[0].text)
            else:
                now, then = new.rows, [row for page in pages for row in page.rows]
            other = set(now).difference(then)
            changed = other if changed is None else changed & other
            before.append({row[0]: row[3] for row in then})
        for row in sorted(new.rows if changed is None else changed):
            there = [revisions.get(row[0]) for revisions in before]
            if row[3] not in there:
                candidates = dict.fromkeys([revision for revision in there[:2] if revision is not None])
                self.texts.append(made(NewText, (made(TreeEntry, row), list(candidates))))

    def _need(self, *keys: Collection[Key]) -> Asking:
        missing = {key for group in keys for key in group if key not in self._pages}
        if missing:
            yield missing

    def _narrow(self, nodes: Nodes, prefix: bytes, passed: set[Key]) -> Generator[Collection[Key], None, Nodes]:
        """Return the nodes, and the pages below them, that may hold keys under `prefix`. Inner pages that also have
        other keys are opened.

        The keys of all visited pages are added to `passed`.
        """
        found: Nodes = []
        # No two nodes hold the same keys: if one is at that place, no other is above or below it.
        todo = [node for node in nodes if node[0] == prefix] or list(nodes)
        while todo:
            node = todo.pop()
            at, key = node
            if at.startswith(prefix):
                passed.add(key)
                found.append(node)
            elif prefix.startswith(at):
                passed.add(key)
                yield from self._need((key,))
                below = self._pages[key].children
                if below is None:
                    found.append(node)
                else:
                    todo += below.items()
        return found

    def _open(self, nodes: Nodes, passed: set[Key]) -> Generator[Collection[Key], None, Nodes]:
        """Return the nodes with each inner page replaced by its children. All returned keys are added to `passed`."""
        yield from self._need([key for _, key in nodes])
        found: Nodes = []
        for node in nodes:
            below = self._pages[node[1]].children
            if below is None:
                found.append(node)
            else:
                found += below.items()
        passed.update([key for _, key in found])
        return found


def _common(first: bytes, last: bytes) -> bytes:
    """Return the common prefix of both, which all keys that sort between them have, too."""
    length = 0
    for one, other in zip(first, last, strict=False):
        if one != other:
            break
        length += 1
    return first[:length]


def _at_place(prefix: bytes, key: Key, before: list[Nodes]) -> list[Key]:
    """Return, for each of the first two trees, the page whose keys are closest to those under `prefix`."""
    found: dict[Key, None] = {}
    for nodes in before[:2]:
        if len(nodes) == 1:  # Nearly always.
            best: Node | None = nodes[0]
        else:
            best = min(nodes, key=lambda node: abs(len(node[0]) - len(prefix)), default=None)
        if best is not None and best[1] != key:
            found[best[1]] = None
    return list(found)
