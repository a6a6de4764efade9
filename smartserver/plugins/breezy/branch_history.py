"""`BranchHistory`: the history of a branch on a server, asked for as it is wanted, less what is here of it already.

What is here: what the local repository holds that it is for, or what earlier commands kept (`shadow`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from breezy.repository import Repository

from smartserver.errors import MissingRevision, NoSuchPart
from smartserver.plugins.breezy.commands import up_to
from smartserver.plugins.breezy.given import until
from smartserver.plugins.breezy.history import History
from smartserver.plugins.breezy.place import KINDS, Place
from smartserver.plugins.breezy.target import is_usable, likely_target, local_tips
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.bzr.selector import Called, decode_answer, encode
from smartserver.vcs.bzr.selector import History as Selected
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.repository_pull import MAX_HAVES


class BranchHistory:
    """What came of one branch's history."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._target: Repository | None = None
        self._guessed = False
        self._history: History | None = None
        self._until: Called | None = None
        """The one revision whose history was asked for; None: the tip."""
        self._newest: RevisionId = b""
        """Which that is."""
        self.refused: Called | None = None
        """The revision that was asked for and is nowhere."""
        self._rests_on_kept = False
        self.numbers: dict[RevisionId, int] = {}
        """The number of the revision that was asked for by number."""

    # -- what it is for

    @property
    def target(self) -> Repository | None:
        """The local repository that history is asked for; what it holds does not come."""
        if not self._guessed:
            self._guessed = True
            self._target = likely_target()
        return self._target

    def is_for(self, repository: Repository) -> None:
        """Say which repository history is for, as long as none has come."""
        if self._history is None and is_usable(repository):
            self._target, self._guessed = repository, True

    def is_alone(self) -> bool:
        """Whether nothing is here that is likely to spare the server a part: no tip of the remote, nor of a branch that
        was opened beside it. Whatever else the target holds may be another project's.
        """
        if self._rests_on_kept:
            return False
        if self.target is None:
            return True
        target = BrzRepository(self.target)
        with target.locked():
            return not target.parents([*self.place.knowledge.tips(), *local_tips()])

    def _here(self) -> Sequence[RevisionId]:
        """What the target has of it, as far as that can be told."""
        if self.target is None:
            return []
        return BrzRepository(self.target).complete_haves(self.place.knowledge.tips(), MAX_HAVES, local_tips())

    # -- what came

    def history(self) -> History:
        """The revisions that `target` lacks."""
        if self._rests_on_kept:
            self.ask_anew()
        history = self.arrived()
        if self._until is not None and history.ends_at_ghost(self._newest):
            self.ask_anew()  # Its number is counted from the tip's: below a ghost there is nothing to be counted.
            history = self.arrived()
        return history

    @property
    def has_come(self) -> bool:
        """Whether any was asked for, and is there or on its way."""
        return self._history is not None

    def arrived(self) -> History:
        """The revisions that came: those that neither `target` has nor what is kept."""
        while self._history is None:
            self.ask()
        with self.place.words():
            self._history.receive()
        return self._history

    def all_is_here(self, target: Repository | None = None) -> None:
        """Take it that all is here; `target`: and where."""
        if target is not None:
            self._target, self._guessed = target, True
        self._history = History(iter(()), 0, KINDS)

    def insert(self, repository: Repository, revisions: Collection[RevisionId]) -> None:
        """Put those of `revisions` that came into a repository; their other parents are there."""
        from smartserver.vcs.bzr.insert import insert

        with self.place.words():
            history = self.history()
            insert(BrzRepository(repository), history.segments(set(revisions)))

    # -- what is asked for

    def begin(self, kept: Sequence[RevisionId] = (), absent: Collection[RevisionId] = ()) -> bool:
        """Ask for what the command wants, all of it or what one revision reaches; whether there is that revision.

        The rest is as in `ask`.
        """
        self._until = asked = until(up_to())
        self.ask(kept, absent)
        found = asked is None or self._until is not None
        if not found:
            with self.place.words():
                self.place.learn_refusal()
        return found

    def narrow_to(self, heads: Sequence[RevisionId]) -> None:
        """Have what one revision reaches asked for, if nothing was."""
        if self._history is None and len(heads) == 1:
            self._until = heads[0]

    def ask_for(self, revision: RevisionId) -> bool:
        """Ask for what one revision reaches, be it in the branch or not; whether the server has it."""
        self._until = revision
        self.ask()
        return self._until is not None

    def ask_again(self, absent: Collection[RevisionId], repository: Repository) -> None:
        """Ask for the history once more: these revisions, though below what the target has, are not in this one."""
        self._target, self._guessed = repository if is_usable(repository) else None, True
        self.ask((), absent)

    def ask_anew(self) -> None:
        """Ask for the history, and not only for what the shadow lacks, or for what one revision reaches."""
        self._until = None
        self.ask()

    def ask_above(self, revisions: Collection[RevisionId], *, tip: bool = False) -> bool:
        """Ask for all history where only that of one revision came, and these may be above; whether it was asked for.

        Of the tip it is known that it is there: it is asked for only with `tip`.
        """
        if self._until is None:
            return False
        known = () if tip else (self.place.there().tip,)
        if set(revisions) <= {*known, *self.history().ghosts}:
            return False
        self.ask_anew()
        return True

    def ask(self, kept: Sequence[RevisionId] = (), absent: Collection[RevisionId] = ()) -> None:
        """Ask for it; where there is no such revision as was named, nothing comes.

        `kept`: revisions that earlier commands left; `absent`: what is below these and not here.
        """
        place = self.place
        with place.words():
            self._rests_on_kept = bool(kept)
            haves = list(dict.fromkeys([*kept, *self._here()]))[:MAX_HAVES]
            place.server.settle()
            absent = list(absent)[:MAX_IDS]
            try:
                count, body = self._receive(haves, absent)
            except (MissingRevision, NoSuchPart):
                if self._until is None:
                    raise
                self.refused = self._until
                self._until = None  # Breezy says that there is none such, or looks for it among all revisions.
                return
            self._history = History(body, count, KINDS)
            place.server.read_on(self._history)
            place.learned()
            named = self._until
            if isinstance(named, int):
                self.numbers = {self._newest: named if named > 0 else place.there().revno + named + 1}

    def _receive(self, haves: Sequence[RevisionId], absent: Sequence[RevisionId]) -> tuple[int, Iterator[bytes]]:
        """The number of the segments of what is asked for, and these."""
        repository = self.place.repository
        if self._until is None:
            self._newest = b""
            pulled = repository.pull(haves, [HERE], absent=absent, bulk=True)
            return pulled.result.segments, pulled.body
        read = repository.read(encode(Selected(self._until)), haves=haves, absent=absent)
        self._newest = next(iter(decode_answer(read.result.said).ids), b"")
        return read.result.segments, read.segments
