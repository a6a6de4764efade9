"""What a first request asks for: a function for each way of reading, given what the command was given.

Which command reads in which way is said in `commands`. What turns out to be missing is asked for then (`stores`), and
at last the whole history: a wrong guess costs a round trip, never the right answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smartserver.plugins.breezy.checkouts import Checkout, checkout_of, open_checkout
from smartserver.plugins.breezy.given import TIP, Arguments, Unclear, is_ours, lies_beside, one, revision, tag_of
from smartserver.records.model import Key, RevisionId
from smartserver.vcs.bzr.selector import Named, RevisionsField, TreesField
from smartserver.verbs.fields import MAX_IDS

NUMBERED = RevisionsField(bare=True, numbers=True)
"""The numbers of what has a tag; the whole graph where that takes more than counting first parents."""

FIRST_BATCH = 9
LARGEST_BATCH = 200
"""`brz log` reads so many revisions at first, each time half as many again, and never more than that."""

MERGED = 2
"""So many times as many are read where merged revisions are shown, which may have come earlier than others."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The arguments of a read; `later`: what is read of trees that are asked for later, if not as `trees` says."""

    chosen: RevisionsField | None = None
    trees: TreesField | None = None
    later: TreesField | None = None
    inside: Selection | None = None
    """Instead, where the URL leads into the branch."""
    stats: bool = False
    """Whether the repository's are read, too."""
    ends: bool = False
    """Whether it is as if nothing were below the oldest that is chosen."""
    ids: Sequence[RevisionId] = ()
    """Revisions whose ancestors are among those that may be chosen, too."""
    history: bool = False
    """Whether it is whole revisions that the command reads: fewer bytes than all trees."""

    @property
    def is_deep(self) -> bool:
        """Whether what is read grows with the whole history."""
        return self.chosen is not None and not self.chosen.limit and self.chosen.oldest is None


GRAPH = Selection(RevisionsField(bare=True))
"""The ids and parents of all revisions."""

MAINLINE = Selection(RevisionsField(left_hand=True, bare=True))
"""The ids in the line of first parents."""

ALL_MESSAGES = Selection(RevisionsField())
"""What all revisions say of themselves."""


def copied_revision(arguments: Arguments) -> Selection | None:
    """Of a branch that is made from one beside it: what an older revision says, where that is what becomes its tip."""
    return named_revisions(arguments) if lies_beside(arguments) and arguments.get("revision") else None


def named_revisions(arguments: Arguments) -> Selection:
    """What the revisions that are named say of themselves."""
    given = [arguments.get(name) or [] for name in ("revision", "revision_info_list", "revno")]
    return _said_by([each for part in given for each in ([part] if isinstance(part, str) else part)])


def revision_number(arguments: Arguments) -> Selection:
    """The same, and the number of one that is named by its id, which only the graph says."""
    asked = named_revisions(arguments)
    by_id = asked.trees is not None and any(isinstance(each, bytes) for each in asked.trees.revisions)
    return Selection(RevisionsField(bare=True), later=asked.later) if by_id else asked


def _said_by(specs: Sequence[object]) -> Selection:
    try:
        named = list(dict.fromkeys([TIP if (found := revision(each)) is None else found for each in specs]))
    except Unclear as unclear:
        return Selection(unclear.look or NUMBERED, later=TreesField())
    return Selection(trees=TreesField(named, paths=[], texts=False) if named else None, later=TreesField())


def _trees(revisions: Callable[[], Sequence[Named]], always: Sequence[Named] = (), **options: Any) -> Selection:
    """Trees, those of `revisions` at once where that can be told, those that are `always` read in any case."""
    try:
        return Selection(trees=TreesField(list(revisions()), **options))
    except Unclear as unclear:
        later = TreesField(list(always), **options)
        return Selection(unclear.look, later if always else None, later)


def _places(path: str | None, directory: object = None) -> dict[str, Any]:
    """What of a tree a path names, which may be a URL, a path below another place, or one in a checkout."""
    if path is None:
        return {"inner": True} if directory is None else {}
    if directory is not None:
        return {"paths": [_in_tree(path.strip("/"))]}
    if is_ours(path):
        return {"inner": True}
    return {"paths": [_in_checkout(path)]}


def _in_checkout(path: str) -> bytes:
    """A local path as seen from the root of the checkout it lies in."""
    root = _checkout_root(path)
    if root is None or os.path.abspath(path) == root:
        return b""
    return _in_tree(os.path.relpath(path, root))


def _in_tree(path: str) -> bytes:
    """A path as trees have it; what is no UTF-8 is in none."""
    return path.encode("utf-8", "surrogateescape")


def _is_folder(path: str) -> bool:
    """Whether a local path leads to a folder in a checkout."""
    return os.path.isdir(path) and _in_checkout(path) != b""


def _checkout_root(path: str) -> str | None:
    root = os.path.abspath(path)
    while not os.path.isdir(os.path.join(root, ".bzr")):
        above = os.path.dirname(root)
        if above == root:
            return None
        root = above
    return root


def file_text(arguments: Arguments) -> Selection:
    """A file of a revision."""
    # It looks the file up in the newest tree first: it may have been moved since.
    places = _places(arguments["filename"], arguments.get("directory"))
    return _trees(lambda: list(dict.fromkeys([TIP, one(arguments)])), [TIP], **places)


def file_names(arguments: Arguments) -> Selection:
    """The names in a tree."""
    path = arguments.get("path")
    directory = arguments.get("directory")
    places = _places(path if path is not None else directory, directory if path is not None else None)
    if arguments.get("from_root"):
        places = {}
    return _trees(lambda: [one(arguments)], texts=False, **places)


def whole_tree(arguments: Arguments) -> Selection:
    """A tree with all its texts."""
    # When a file was changed is what the revision that did says.
    return _trees(lambda: [one(arguments)], inner=True, bringers=bool(arguments.get("per_file_timestamps")))


def file_versions(arguments: Arguments) -> Selection:
    """All texts of a file, and the numbers of the revisions that brought them."""
    places = _places(arguments["filename"], arguments.get("directory"))
    # In a checkout it is what the tree rests on that lines are from, be that in the branch or not any more.
    is_of_tree = "paths" in places and not (arguments.get("directory") or arguments.get("revision"))
    checkout = checkout_of(arguments["filename"]) if is_of_tree else None
    basis = [] if checkout is None else checkout.parents()
    asked = _trees(lambda: [one(arguments), *basis], versions=True, **places)
    # The numbers it shows are those of the whole history.
    return Selection(RevisionsField(bare=True), asked.trees, asked.later, ids=basis)


def described_revision(arguments: Arguments) -> Selection | None:
    """In a lightweight checkout: what its tree rests on, and the number of that; else what a revision says."""
    checkout = checkout_of(arguments.get("location") or ".")
    history = arguments.get("all") or arguments.get("include_history")
    if checkout is None or arguments.get("revision") or not checkout.parents():
        said = _said_by(arguments.get("revision") or [TIP])
        return Selection(RevisionsField(), later=said.later) if history else said
    basis = checkout.parents()[:1]
    return Selection(RevisionsField(bare=not history), TreesField([*basis], paths=[], texts=False), ids=basis)


def two_trees(arguments: Arguments) -> Selection | None:
    """What differs between two trees."""
    if arguments.get("old") or arguments.get("new"):
        return Selection(trees=TreesField([TIP])) if len(compared_branches(arguments)) == 2 else None
    given = arguments.get("revision") or []
    files = arguments.get("file_list") or []
    if not given:
        return _compared(files)
    urls = [each for each in files if is_ours(each)]
    places: dict[str, Any] = {"inner": True} if urls else {}
    if urls and len(urls) < len(files):
        places["paths"] = [_in_tree(each) for each in files if each not in urls][:MAX_IDS]

    def revisions() -> list[Named]:
        ends = [revision(each) or TIP for each in given]
        return ends if len(ends) == 2 else [*ends, TIP]

    return _trees(revisions, changed=True, **places)


def compared_branches(arguments: Arguments) -> list[str]:
    """The URLs of the two branches that `brz diff` compares, the old one first; fewer where one is here."""
    places = [arguments.get("old"), arguments.get("new")]
    return [each for each in places if isinstance(each, str) and is_ours(each)]


def new_tree(arguments: Arguments) -> Selection | None:
    """The tree of a new lightweight checkout."""
    return _trees(lambda: [one(arguments)]) if arguments.get("lightweight") else None


def _compared(paths: Sequence[str]) -> Selection | None:
    """In a lightweight checkout: what the files that were changed were before."""
    checkout = checkout_of(paths[0] if paths else ".")
    return None if checkout is None else Selection(trees=TreesField(files=_texts(checkout), texts=False))


def _texts(checkout: Checkout) -> list[Key]:
    return checkout.changed()[:MAX_IDS]


def reverted_files(arguments: Arguments) -> Selection | None:
    """In a lightweight checkout: a tree, less what it has; else what the files that were changed were before."""
    files = arguments.get("file_list") or []
    if not arguments.get("revision"):
        return _compared(files)
    checkout = checkout_of(files[0] if files else ".")
    return None if checkout is None else _moved(checkout, arguments)


def _moved(checkout: Checkout, arguments: Arguments) -> Selection:
    """A tree in which a lightweight checkout's is to be, less what this one has."""
    return _trees(lambda: [one(arguments)], had=checkout.parents(), files=_texts(checkout))


def newer_tree(arguments: Arguments) -> Selection | None:
    """In a lightweight checkout: what is new since its tree was made."""
    checkout = checkout_of(arguments.get("dir") or ".")
    if checkout is None or not checkout.parents():
        return None
    asked = _moved(checkout, arguments)
    if asked.trees is None:
        return replace(asked, ids=checkout.parents()[:1])
    # What is merged with what is read off the graph between the two.
    chosen = RevisionsField(bare=True, newest=asked.trees.revisions[0], oldest=checkout.parents()[0])
    return Selection(chosen, asked.trees, ends=True)


def pulled_into(checkout: Checkout, arguments: Arguments) -> Selection:
    """What a lightweight checkout is to be that something beside its branch is pulled into."""
    asked = _moved(checkout, arguments)
    if asked.trees is None or not checkout.parents():
        return asked
    # What each side has alone: so it shows whether they have diverged.
    basis = checkout.parents()[0]
    chosen = RevisionsField(bare=not arguments.get("verbose"), oldest=basis)
    return Selection(chosen, asked.trees, ends=True, ids=[basis])


def switched_tree(arguments: Arguments) -> Selection | None:
    """In a lightweight checkout: the tree of another branch, less what it has."""
    checkout = open_checkout(arguments.get("directory") or ".")
    return None if checkout is None else _moved(checkout, arguments)


def tree_basis(arguments: Arguments) -> Selection | None:
    """In a lightweight checkout: what its tree is based on."""
    checkout = checkout_of((arguments.get("selected_list") or ["."])[0])
    if checkout is None:
        return None
    files = _texts(checkout) if arguments.get("show_diff") else []
    return commit_on(checkout.parents(), checkout.ghosts(), files)


def commit_on(parents: Sequence[RevisionId], ghosts: Sequence[RevisionId] = (), files: Sequence[Key] = ()) -> Selection:
    """What a commit reads of its parents; where they are several, their history says which texts come from which."""
    chosen = RevisionsField(bare=True) if len(parents) > 1 else None
    trees = TreesField(texts=False, had=[*parents, *ghosts], files=list(files))
    return Selection(chosen, trees, ids=parents[1:])


def branch_stats(arguments: Arguments) -> Selection:
    """What the branch is; on request its first revision, its last one, and what the repository consists of."""
    if not arguments.get("verbose"):
        return Selection()
    return Selection(trees=TreesField([TIP, 1], paths=[], texts=False), stats=True)


def removed_revisions(arguments: Arguments) -> Selection | None:
    """What is removed, and what is the tip then; that one's tree, where there is a lightweight checkout."""
    location = arguments.get("location") or "."
    checkout = None if is_ours(location) else checkout_of(location)
    given = arguments.get("revision")
    try:
        kept = revision(given[0]) if given else TIP - 1
    except Unclear:
        return None
    if not isinstance(kept, int) or (checkout is None and not is_ours(location)):
        return None
    if kept == TIP:
        return Selection(RevisionsField(1))
    if checkout is None:
        trees, merged = TreesField([kept], paths=[], texts=False), []
    else:
        trees, merged = TreesField([kept], had=checkout.parents(), texts=False), checkout.parents()[1:]
    # Revisions that are merged in the tree stay, and so do their tags.
    return Selection(RevisionsField(oldest=kept + 1), trees, ends=True, ids=merged)


def tree_status(arguments: Arguments) -> Selection | None:
    """Of a lightweight checkout the tree itself says nearly all; but whether what it rests on is there still."""
    checkout = checkout_of((arguments.get("file_list") or ["."])[0])
    if checkout is None or arguments.get("revision"):
        return None
    basis = checkout.parents()[:1]
    return Selection(trees=TreesField(texts=False, had=basis) if basis else None, later=TreesField([], texts=False))


def tag_numbers(arguments: Arguments) -> Selection:
    """The numbers of the revisions that have a tag."""
    # With each goes its revision's number.
    return Selection(RevisionsField(bare=True) if arguments.get("revision") else NUMBERED)


def testament(arguments: Arguments) -> Selection:
    """What a revision says of itself, and the names and sums of its tree."""
    asked = _trees(lambda: [one(arguments)], texts=False)
    if asked.trees is None:
        return asked
    return Selection(RevisionsField(1, newest=asked.trees.revisions[0]), asked.trees)


def ancestry(arguments: Arguments) -> Selection:
    """The whole graph, with that below what the tree of a lightweight checkout rests on, be it in the branch or not."""
    checkout = checkout_of(arguments.get("location") or ".")
    return Selection(RevisionsField(bare=True), ids=() if checkout is None else checkout.parents()[:1])


_LOG_FILTERS = (
    "authors", "exclude_common_ancestry", "match", "match_author", "match_bugs", "match_committer",
    "match_message", "message", "omit_merges",
)  # fmt: skip
"""With these `brz log` reads more revisions than it shows."""


def logged_revisions(arguments: Arguments) -> Selection | None:
    """What a log says of the revisions it shows."""
    files = arguments.get("file_list") or []
    given = arguments.get("revision") or arguments.get("change") or []
    shown = bool(arguments.get("show_diff"))
    each = TreesField(each=True, texts=shown, changed=shown) if shown or arguments.get("verbose") else None
    merged = (
        arguments.get("include_merged") or arguments.get("include_merges") or arguments.get("levels") not in (None, 1)
    )
    try:
        ends = [revision(spec) for spec in given]
    except Unclear as unclear:
        if merged or len(given) > 1:  # It shows several, and looks at others.
            return Selection(RevisionsField(left_hand=not merged), later=each)
        tag = tag_of(given[0])
        return Selection(RevisionsField(1, newest=tag, numbers=True) if tag else unclear.look, later=each)
    newest, oldest = (ends[-1], ends[0]) if ends else (None, None)
    if files and not given and not is_ours(files[0]) and _is_folder(files[0]):
        return None  # Each tree is compared with the one before: that takes the whole history.
    # What one file has to do with merges is read off the whole graph.
    place = {"inner": True} if not files or is_ours(files[0]) else {"paths": [_in_checkout(files[0])]}
    ends_at = dict.fromkeys([TIP, TIP if newest is None else newest])
    if given:  # Of a range it compares each tree with the one before.
        inside = Selection(
            RevisionsField(0, True, False, newest, oldest), TreesField(list(ends_at), each=True, texts=False)
        )
    elif each is not None:  # What each revision changed is compared with the file.
        inside = Selection(trees=TreesField([TIP], paths=[], texts=False), history=True)
    else:
        inside = Selection(RevisionsField(bare=True, merges=True), TreesField(list(ends_at), versions=True, **place))
    if place.get("paths", [b""]) != [b""]:
        return None if inside.history else inside
    limit = 0 if given or any(arguments.get(name) for name in _LOG_FILTERS) else arguments.get("limit") or 0
    if not (merged or arguments.get("forward")):
        return Selection(RevisionsField(batched(limit), True, False, newest, oldest), each, inside=inside)
    # It goes through the whole graph, and says what few revisions say. Merged ones lie among others.
    few = batched(limit) * (MERGED if merged else 1) if each is None else 0
    return Selection(RevisionsField(0, not merged, few > 0, newest, oldest, ends=few), each, inside=inside)


def batched(limit: int) -> int:
    """How many revisions `brz log` reads to show `limit`; 0: all."""
    if not limit:
        return 0
    read, batch = FIRST_BATCH, FIRST_BATCH
    while read < limit:
        batch = min(int(batch * 1.5), LARGEST_BATCH)
        read += batch
    return read
