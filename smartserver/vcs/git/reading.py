"""Answers `Repository.read` of git repositories: a shallow fetch gets only some of the commits, a partial fetch only
some of the objects.

Commits are selected on the graph as git's own `upload-pack` selects them. Objects are found by comparing the trees of
each selected commit with those of its parents that the client has or that are sent before. A commit whose parents are
cut off is compared with the newest commits of the client.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from smartserver.errors import MissingRevision, NoSuchPart, shown
from smartserver.records.cache import Cache
from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, damage_of
from smartserver.records.model import Key, Piece, Record, RevisionId, SentRecord
from smartserver.vcs.git.content import OBJECT, OF_RECORD, RECENT
from smartserver.vcs.git.format import BLOB, COMMIT, FOLDER, SUBMODULE, TAG, TREE, ObjectFormat, entry_type
from smartserver.vcs.git.names import HEAD, SHORT_FOR
from smartserver.vcs.git.selector import BLOBS, MAX_DEPTH, FetchSelector, decode, encode_cut

_DATE: Final = re.compile(rb"^committer [^\n]*> (-?\d{1,18})", re.MULTILINE)

EDGES: Final = 16
"""The number of the client's newest commits whose trees are read whole if the parents of a sent commit are cut off."""

AHEAD: Final = 256
"""The number of commits that one `prefetch` requests."""

_WANT: Final = 1
_HAVE: Final = 2


def read(stored: RepositoryView, form: ObjectFormat, selector: bytes, question: ReadScope) -> ReadPlan:
    """Return the objects that a fetch requests.

    Raises:
        LimitExceeded: the selector exceeds a limit.
        Unsupported: this release does not know the selector's format.
        MissingRevision: a want is not stored.
        NoSuchPart: an excluded ref does not exist, or no commit is selected.
    """
    asked = decode(selector)
    objects = _Objects(stored, form)
    history = _History(stored, objects, asked)
    wants, others = [], []
    for want in question.wants:
        ordinal = stored.ordinal(want)
        if ordinal is not None:
            wants.append(ordinal)
        elif stored.length(OBJECT, want) is not None:
            others.append(want)
        else:
            raise MissingRevision(want)
    history.select(wants, _stored(stored, question.haves))
    sending = _Sending(stored, form, objects, history, asked, others)
    shallow, unshallow = ([stored.revision(place) for place in some] for some in (history.shallow, history.unshallow))
    return ReadPlan(encode_cut(shallow, unshallow), pieces=sending.pieces())


def _stored(stored: RepositoryView, revisions: Iterable[RevisionId]) -> list[int]:
    return [ordinal for ordinal in map(stored.ordinal, revisions) if ordinal is not None]


class _Objects:
    """Reads the objects of a repository, and caches all except blobs."""

    def __init__(self, stored: RepositoryView, form: ObjectFormat) -> None:
        self._stored = stored
        self._format = form
        self._recent = Cache[Key, Record](RECENT, lambda record: len(record.text) + OF_RECORD)

    def read(self, key: Key) -> Record:
        """Return the object of a key.

        Raises:
            CorruptRecord: the object is missing.
        """
        record = self._recent.get(key)
        if record is not None:
            self._stored.charge(1, len(record.text))  # The caller parses the text again.
            return record
        record = self._stored.record(OBJECT, key)
        with damage_of(key):
            if record is None:
                raise ValueError("the object is missing")
        assert record is not None
        if record.meta != BLOB:
            self._recent.put(key, record)
        return record

    def tree(self, key: Key) -> list[tuple[bytes, bytes, Key]]:
        with damage_of(key):
            entries = self._format.tree(key, self.read(key).text)
        self._stored.charge(len(entries))
        return entries

    def root(self, commit: RevisionId) -> Key:
        with damage_of(commit):
            return self._format.commit(commit, self.read(commit).text)[0]

    def seconds(self, commit: RevisionId) -> int:
        """Return the time of a commit in seconds; 0 if its text has no date."""
        found = _DATE.search(self.read(commit).text)
        return int(found[1]) if found is not None else 0


class _History:
    """Selects the commits that a fetch sends, and those at which history is cut."""

    def __init__(self, stored: RepositoryView, objects: _Objects, asked: FetchSelector) -> None:
        self._stored = stored
        self._objects = objects
        self._asked = asked
        self._flags: dict[int, int] = {}
        self._known = set(_stored(stored, asked.shallow))
        """The ordinals of the commits that are shallow at the client now."""
        self.shallow: list[int] = []
        """The ordinals of the commits that become shallow at the client."""
        self.unshallow: list[int] = []
        """The ordinals of the commits that are no longer shallow at the client afterwards."""
        self.selected: list[int] = []
        """The ordinals of the revisions that are sent, parents first."""
        self.haves: Sequence[int] = ()

    def select(self, wants: Sequence[int], haves: Sequence[int]) -> None:
        """Set `selected`, `shallow` and `unshallow`. `wants`, `haves`: the ordinals of revisions, including tags."""
        self.haves = haves
        tips = [tip for want in wants if self._is_commit(tip := self._peeled(want))]
        asked = self._asked
        kept: set[int] = set()
        cut: Collection[int] = ()
        if asked.since is not None or asked.excluded:
            cut, kept = self._by_rev_list(tips)
        elif asked.depth == MAX_DEPTH:
            kept = self._known
        elif asked.depth:
            starts = self._reachable_shallow(tips) if asked.relative else tips
            cut, kept = self._by_depth(starts, asked.depth + asked.relative)
        self.shallow = [ordinal for ordinal in cut if ordinal not in self._known and ordinal not in kept]
        self.unshallow = sorted(self._known & kept)
        further = [parent for ordinal in self.unshallow for parent in self._stored.parents(ordinal)]
        self._walk([*wants, *further], {*cut, *self._known} - kept)
        self._follow()

    def available(self, ordinal: int) -> list[int]:
        """Return the parents of a commit that are sent or that the client has."""
        return [parent for parent in self._stored.parents(ordinal) if self._flags.get(parent)]

    def _peeled(self, ordinal: int) -> int:
        """Return the revision that a tag peels to; for a tag of a tree or blob, the innermost tag."""
        while parents := self._stored.parents(ordinal):
            if self._objects.read(self._stored.revision(ordinal)).meta != TAG:
                break
            ordinal = parents[0]
        return ordinal

    def _is_commit(self, ordinal: int) -> bool:
        """Tell whether a revision is a commit. To git, a file `shallow` that names any other object is damaged."""
        return self._objects.read(self._stored.revision(ordinal)).meta == COMMIT

    def _by_depth(self, starts: Iterable[int], depth: int) -> tuple[Collection[int], set[int]]:
        """Return the commits at `depth`, and those at a smaller depth. `starts` have depth 1; of several paths to a
        commit, the shortest counts."""
        level, above = dict.fromkeys(starts), set[int]()
        for _ in range(depth - 1):
            above.update(level)
            parents = self._stored.parents
            level = dict.fromkeys(parent for ordinal in level for parent in parents(ordinal) if parent not in above)
            if not level:
                break
        return level, above

    def _reachable_shallow(self, tips: Iterable[int]) -> list[int]:
        """Return the client's shallow commits that `tips` reach."""
        if not self._known:
            return []
        least, seen, found = min(self._known), set[int](), []
        left = list(tips)
        while left:
            ordinal = left.pop()
            if ordinal in seen or ordinal < least:
                continue
            seen.add(ordinal)
            if ordinal in self._known:
                found.append(ordinal)
            else:
                left += self._stored.parents(ordinal)
        return found

    def _by_rev_list(self, tips: Sequence[int]) -> tuple[Collection[int], set[int]]:
        """Return the selected commits with a parent that is not selected, and the set of the other selected commits."""
        asked = self._asked
        flags = dict.fromkeys(tips, _WANT)
        for name in asked.excluded:
            flags[self._peeled(self._ref(name))] = _HAVE
        heap = [-ordinal for ordinal in set(flags)]
        heap.sort()
        kept: list[int] = []
        live = sum(flag == _WANT for flag in flags.values())
        while live:
            ordinal = -heappop(heap)
            flag = flags[ordinal]
            if flag == _WANT:
                live -= 1
                if asked.since is not None and self._objects.seconds(self._stored.revision(ordinal)) < asked.since:
                    flag = flags[ordinal] = _HAVE
                else:
                    kept.append(ordinal)
            for parent in self._stored.parents(ordinal):
                before = flags.get(parent)
                if before is None:
                    heappush(heap, -parent)
                    live += flag == _WANT
                elif before == _WANT and flag == _HAVE:
                    live -= 1
                flags[parent] = max(before or 0, flag)
        if not kept:
            raise NoSuchPart("no commits selected for shallow requests")
        inside = set(kept)
        # The parents of a commit on the border are left out, whatever their dates.
        border, reached = [], set[int]()
        left = [tip for tip in tips if tip in inside]
        while left:
            ordinal = left.pop()
            if ordinal not in reached:
                reached.add(ordinal)
                parents = self._stored.parents(ordinal)
                if inside.issuperset(parents):
                    left += parents
                else:
                    border.append(ordinal)
        return border, reached.difference(border)

    def _ref(self, name: bytes) -> int:
        refs = self._stored.refs()
        full = (self._stored.setting(HEAD) or b"") if name == b"HEAD" else name
        for prefix in SHORT_FOR:
            value = refs.get(prefix + full)
            ordinal = self._stored.ordinal(value[0].id) if value is not None else None
            if ordinal is not None:
                return ordinal
        raise NoSuchPart(f"no ref {shown(name)} whose history could be left out")

    def _walk(self, wants: Iterable[int], cut: Collection[int]) -> None:
        """Select the revisions that `wants` reach and the haves do not. Paths from `wants` end at `cut`, those from the
        haves at the client's shallow commits.

        A child's ordinal is higher than its parents', so all flags of a commit are set when it is popped.
        """
        flags = self._flags
        heap: list[int] = []
        live = 0
        ends: Collection[int]

        def add(ordinal: int, flag: int) -> int:
            before = flags.get(ordinal)
            if before is None:
                heappush(heap, -ordinal)
            flags[ordinal] = (before or 0) | flag
            return (flags[ordinal] == _WANT) - (before == _WANT)

        for ordinal in self.haves:
            live += add(ordinal, _HAVE)
        for ordinal in wants:
            live += add(ordinal, _WANT)
        while live:
            ordinal = -heappop(heap)
            if flags[ordinal] & _HAVE:
                ends, flag = self._known, _HAVE
            else:
                live -= 1
                self.selected.append(ordinal)
                ends, flag = cut, _WANT
            if ordinal not in ends:
                for parent in self._stored.parents(ordinal):
                    live += add(parent, flag)
        self.selected.reverse()

    def _follow(self) -> None:
        """Select the annotated tags below the followed prefixes whose target is sent or is already at the client."""
        if not self._asked.follow:
            return
        prefixes = tuple(pattern.rstrip(b"*") for pattern in self._asked.follow)
        refs = self._stored.refs()
        self._stored.charge(len(refs))
        tips = [tip.id for name, value in refs.items() if name.startswith(prefixes) for tip in value if tip.attributes]
        found = [ordinal for ordinal in _stored(self._stored, tips) if not self._flags.get(ordinal)]
        if not found:
            return
        absent = [parent for cut in self._known for parent in self._stored.parents(cut)]
        here = {ordinal: self._peeled(ordinal) for ordinal in found}
        beyond = set(self._stored.reached(list(here.values()), self.haves, absent))
        selected = set(self.selected)
        added: set[int] = set()
        for ordinal, target in here.items():
            if target in selected or (self.haves and target not in beyond):
                while ordinal != target and ordinal not in selected:
                    added.add(ordinal)
                    (ordinal,) = self._stored.parents(ordinal)
        self.selected = sorted({*self.selected, *added}) if added else self.selected


class _VisitedTree(NamedTuple):
    """A tree to walk, and the trees at its path in commits that the client has or is sent."""

    key: Key
    bases: Sequence[Key]
    depth: int


class _Sending:
    """Yields the objects of the selected commits, each once, and a base before the objects that may use it."""

    def __init__(
        self,
        stored: RepositoryView,
        form: ObjectFormat,
        objects: _Objects,
        history: _History,
        asked: FetchSelector,
        others: Sequence[Key],
    ) -> None:
        """`others`: the keys of the wanted objects that are not revisions."""
        self._stored = stored
        self._format = form
        self._objects = objects
        self._history = history
        self._others = others
        self._blobs = min((number for kind, number in asked.filters if kind == BLOBS), default=None)
        self._depth = min((number for kind, number in asked.filters if kind != BLOBS), default=None)
        self._thin = asked.thin and not asked.filters
        self._sent: set[Key] = set()
        self._here: set[Key] = set()
        """Blobs that the client has."""
        self._done: set[tuple[Key, int]] = set()
        """The trees that were walked, each with its depth; without a filter of depths, the depth is 0."""
        self._edges: list[Key] | None = None
        """The result of `_read_edges`; None before its first call."""

    def pieces(self) -> Iterator[Piece]:
        """Yield all objects as one piece, because each segment costs a header."""
        selected = self._history.selected
        if selected or self._others:
            yield selected[-1] if selected else 0, self._all()

    def _all(self) -> Iterator[SentRecord]:
        if self._history.unshallow:
            self._read_edges()
        for at, ordinal in enumerate(self._history.selected):
            if at % AHEAD == 0:
                ahead = self._history.selected[at : at + AHEAD]
                self._stored.prefetch([(OBJECT, self._stored.revision(commit)) for commit in ahead])
            revision = self._stored.revision(ordinal)
            record = self._objects.read(revision)
            if record.meta == COMMIT:
                yield OBJECT, revision
                yield from self._commit(ordinal, revision)
                continue
            yield from self._wanted(revision)
            if record.meta == TAG and not self._stored.parents(ordinal):
                with damage_of(revision):
                    target = self._format.tag(revision, record.text)[0]
                yield from self._wanted(target)
        for key in self._others:
            yield from self._wanted(key)

    def _wanted(self, key: Key) -> Iterator[SentRecord]:
        """Yield a wanted object, even if a filter excludes it, and the objects below it that pass the filters."""
        record = self._objects.read(key) if self._stored.length(OBJECT, key) is not None else None
        if record is not None and record.meta == TREE:
            yield from self._below(_VisitedTree(key, (), 0), wanted=True)
        elif key not in self._sent:
            self._sent.add(key)
            yield OBJECT, key

    def _commit(self, ordinal: int, commit: RevisionId) -> Iterator[SentRecord]:
        parents = self._history.available(ordinal)
        if parents:
            bases = [self._objects.root(self._stored.revision(parent)) for parent in parents]
        else:
            bases = self._read_edges()
        root = self._objects.root(commit)
        if root not in bases:
            yield from self._below(_VisitedTree(root, list(dict.fromkeys(bases))[:2], 0))

    def _read_edges(self) -> list[Key]:
        """Return the root trees of the newest commits that the client has. No object in these trees is sent again."""
        if self._edges is None:
            history, stored = self._history, self._stored
            newest = sorted({*history.haves, *history.unshallow}, reverse=True)
            edges = [stored.revision(ordinal) for ordinal in [*history.unshallow, *newest[:EDGES]]]
            commits = [commit for commit in dict.fromkeys(edges) if self._objects.read(commit).meta == COMMIT]
            self._edges = list(dict.fromkeys(map(self._objects.root, commits)))
            left = list(self._edges)
            while left:
                key = left.pop()
                if (key, 0) in self._done:
                    continue
                self._done.add((key, 0))
                for mode, _, entry in self._objects.tree(key):
                    if entry_type(mode) == FOLDER:
                        left.append(entry)
                    elif entry_type(mode) != SUBMODULE:
                        self._here.add(entry)
        return self._edges

    def _below(self, top: _VisitedTree, *, wanted: bool = False) -> Iterator[SentRecord]:
        """Yield a tree and the objects below it that pass the filters. With `wanted` the tree itself always passes."""
        left = [top]
        while left:
            key, bases, depth = tree = left.pop()
            at = 0 if self._depth is None else depth
            if (key, at) in self._done:
                continue
            self._done.add((key, at))
            passes = self._depth is None or depth < self._depth or (wanted and tree is top)
            if passes and key not in self._sent:
                self._sent.add(key)
                yield self._named(key, bases)
            if self._depth is not None and depth + 1 >= self._depth:
                continue
            folders = []
            for mode, entry, old in self._entries(key, bases):
                kind = entry_type(mode)
                if kind == FOLDER:
                    folders.append(_VisitedTree(entry, old, depth + 1))
                elif kind != SUBMODULE and entry not in self._sent and entry not in self._here and self._passes(entry):
                    self._sent.add(entry)
                    yield self._named(entry, old)
            self._stored.prefetch((OBJECT, folder.key) for folder in folders if (folder.key, at) not in self._done)
            left += reversed(folders)

    def _entries(self, key: Key, bases: Sequence[Key]) -> Iterator[tuple[bytes, Key, Sequence[Key]]]:
        """Yield each entry that differs from all `bases`: its mode, its key, and the keys that the bases have at its
        name, if they are of the same type."""
        if len(bases) == 1:
            text, base = self._objects.read(key).text, self._objects.read(bases[0]).text
            same_names = self._format.changed(text, base)
            if same_names is not None:
                self._stored.charge(len(same_names))
                for mode, _, new, old in same_names:
                    yield mode, new, (old,)
                return
        named = [{name: (mode, entry) for mode, name, entry in self._objects.tree(base)} for base in bases]
        for mode, name, entry in self._objects.tree(key):
            found = [before for entries in named if (before := entries.get(name)) is not None]
            if (mode, entry) not in found:
                kind = entry_type(mode)
                yield mode, entry, [its for its_mode, its in found if entry_type(its_mode) == kind]

    def _passes(self, blob: Key) -> bool:
        if self._blobs is None:
            return True
        return self._blobs > 0 and (self._stored.length(OBJECT, blob) or 0) < self._blobs

    def _named(self, key: Key, bases: Iterable[Key]) -> SentRecord:
        """Return an object to send, with a base if a suitable one is known."""
        base = next((other for other in bases if other != key and (self._thin or other in self._sent)), None)
        return (OBJECT, key) if base is None else (OBJECT, key, base)
