"""`git-remote-hpss`: git's remote-helper protocol on two streams, with one request for each command of the user.

`list` makes the only pull of a fetch: the objects stay in the unread stream until git says `fetch`. `list for-push`
mostly makes no request: every cached ref is listed with an unknown value (`?`), so that git leaves each decision to the
server. In the cases of rule 2 below the server is asked, for one more round trip.
"""

# Theory of operation
# ===================
#
# Git talks to a remote helper in lines: `capabilities`, `option`, `list`, `fetch` or `list for-push`, `push`. It
# wants the refs first and decides on them, which would be one round trip for the refs and one for the rest. Here a
# whole conversation makes one request.
#
# *A fetch.* `list` sends `Repository.pull` for refs and history together, and answers from its reply. The objects
# wait in the unread stream (`fetch.Fetch`) until git says `fetch`, which names what it wants. What to pull must be
# known before that: `hint` reads the command line of the git that started us, and `wants` applies git's rules for
# what that command will want.
#
# *A push.* `list for-push` mostly makes no request. It lists the cached refs, each with the value `?`, so git leaves
# "up to date", "non-fast-forward" and "already exists" to the server. `push.GitPush` sends all refspecs as one request.
#
# Rules:
#
# 1) The hint need not be right. If it is wrong or missing, more history comes, or one more request is made.
# 2) Git's decisions on a cached list must not depend on values that may be stale. The server is asked for its refs
#    first if git compares all refs (`--mirror`, `--prune`, `:`, followed tags) or cannot resolve a short target on
#    cached ones (`listing.must_ask`), if leases could leave nothing to send or change another decision
#    (`Leases.must_ask`), if a shallow or partial repository meets an unknown remote, or if git's command line cannot be
#    read.
# 3) A leased ref is listed with the value that its lease expects. Then git agrees with the lease and passes it on,
#    and the server compares it with the real value.
# 4) Git's line protocol has no escapes: names that cannot be a word of a line are left out (`_sayable`).
#
# The hard case is a short target, as in `git push origin main:x`. Git resolves `x` against the list: it may be a
# branch or a tag, and somebody may have created the other one meanwhile. The request then carries conditions, calls
# that fail if one of the other meanings exists (`listing.conditions`). If one fails, nothing was done; `refspecs`
# resolves the name on the refs that the refusal brought, and `push` sends it again.
#
# What is ugly: much of git's own parsing is repeated in `hint` and `refspecs`, because a helper is told too little.
# Each of those rules saves one round trip of an everyday command, and each is tested against git.

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from smartserver.client.knowledge import Knowledge
from smartserver.client.places import path_in_words
from smartserver.client.repository import RemoteRepository
from smartserver.errors import MissingRevision, NoSuchRepository, WrongVcs
from smartserver.plugins.git.fetch import Fetch
from smartserver.plugins.git.hint import Hint
from smartserver.plugins.git.listing import NO_TIP, Leases, must_ask
from smartserver.plugins.git.options import Options
from smartserver.plugins.git.push import GitPush
from smartserver.plugins.git.refspecs import Refspecs
from smartserver.plugins.git.terminal import CannotGoOn, Terminal
from smartserver.plugins.git.wants import wants
from smartserver.records.model import Tip
from smartserver.records.system import system_of
from smartserver.spans import Part, span
from smartserver.vcs.git.names import HEAD
from smartserver.vcs.git.repository import GitRepository

if TYPE_CHECKING:
    from smartserver.client.faults import Advice
    from smartserver.client.places import Place

FORMATS = frozenset({"git sha1", "git sha256"})
"""The systems that a remote may have. Git gets the object format as a word of a line, so no other text may be
passed on."""

BY_ID = ": by its id, only a commit, a tag or the object of a ref can be fetched"


class GitRemote:
    """One run of the helper. It reads commands, writes answers, and shows messages to the user with `say`."""

    def __init__(
        self,
        remote: str,
        location: Place,
        repository: RemoteRepository,
        local: Callable[[], GitRepository | None],
        hint: Hint,
        commands: IO[bytes],
        answers: IO[bytes],
        say: Callable[[str], None],
    ) -> None:
        """`local`: opens the repository in which git runs; it returns None if git runs outside a repository
        (`ls-remote` works anywhere)."""
        self._remote = remote
        self._location = location
        self._repository = repository
        self._open_local = local
        self._hint = hint
        self._commands = commands
        self._answers = answers
        self.terminal = Terminal(say)
        repository.sent = functools.partial(self.terminal.moved, "Writing objects")
        self._options = Options()
        self._fetched = Fetch(path_in_words(location), repository, self.terminal, self._options)
        self._opened: GitRepository | None = None
        self._listed: dict[bytes, bytes] = {}
        """The refs of the remote on which git decided a push, and their values; `NO_TIP` if a ref was listed as
        unknown."""
        self._settled: Mapping[bytes, bytes] = {}
        """Refs that git omits as up to date, given the tips that their leases expect. The server compares those
        tips."""
        self._cached: Refspecs | None = None
        """The refspecs of a push that git decided on cached refs."""

    @property
    def _knowledge(self) -> Knowledge:
        return self._repository.knowledge

    # -- the conversation

    def run(self) -> None:
        """Answer commands until git has no more.

        Raises:
            CannotGoOn, VcsError, CodedError, MediumError, ProtocolError: the command cannot continue.
        """
        try:
            if self._hint.command and not self._hint.refs_only and (local := self._local()) is not None:
                with span(Part.LOCAL, "start git"):
                    local.prepare(objects=self._hint.command == "push")
            while line := self._line():
                self._command(line)
        finally:
            if self._opened is not None:
                with span(Part.LOCAL, "end git"):
                    self._opened.close()

    def close(self) -> None:
        """Remove the `.keep` files of fetched packs. This must be called after the last possible interrupt."""
        self._fetched.close()

    def advised(self, found: Sequence[Advice]) -> None:
        """Show the faults in an accepted push, unless git must be quiet."""
        from smartserver.client.faults import lines  # Faults are very rare.

        if not self._options.quiet:
            for line in lines(found, self._location.key, "git fsck"):
                self.terminal.say(line)

    def _local(self) -> GitRepository | None:
        """Return the repository in which git runs, opened once; None if git runs outside a repository."""
        if self._opened is None:
            with span(Part.LOCAL, "open the repository"):
                self._opened = self._open_local()
        return self._opened

    def _local_or_fail(self, command: str) -> GitRepository:
        local = self._local()
        if local is None:
            raise CannotGoOn(f"{command} needs a git repository, and the current folder is in none")
        return local

    def _command(self, line: bytes) -> None:
        command, _, argument = line.partition(b" ")
        if command == b"capabilities":
            self._answer(b"fetch", b"push", b"option", b"object-format", b"")
        elif command == b"option":
            self._answer(self._options.set(argument.decode("utf-8", "surrogateescape"), self.terminal))
        elif command == b"list":
            self._list_for_push() if argument == b"for-push" else self._list()
        elif command == b"fetch":
            self._fetch(self._batch(b"fetch", argument))
        elif command == b"push":
            self._push(self._batch(b"push", argument))
        else:
            raise CannotGoOn(f"git sent an unknown command: {line.decode('utf-8', 'replace')}")

    def _line(self) -> bytes:
        with span(Part.LOCAL, "git, between its commands"):
            return self._commands.readline().rstrip(b"\n")

    def _batch(self, command: bytes, first: bytes) -> list[bytes]:
        batch = [first]
        while line := self._line():
            name, _, argument = line.partition(b" ")
            if name != command:
                raise CannotGoOn(f"git sent {name.decode('utf-8', 'replace')} among {command.decode()} commands")
            batch.append(argument)
        return batch

    def _answer(self, *lines: bytes) -> None:
        self._answers.write(b"".join([line + b"\n" for line in lines]))
        self._answers.flush()

    def _reopened(self, command: str) -> GitRepository:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        return self._local_or_fail(command)

    # -- fetch

    def _list(self) -> None:
        """Pull the predicted wants, and list the refs."""
        local = None if self._hint.refs_only else self._local()
        if local is not None and self._hint.is_lazy:  # Git asks for objects by their ids, and needs no ref.
            self._options.lazy = True
            self._answer(*_format(local.object_format), b"")
            return
        if local is None:
            self._repository.learn_refs()
        else:
            try:
                with span(Part.LOCAL, "read git's configuration"):
                    wanted = wants(self._hint, self._remote, local.settings(), local.id_length)
                self._fetched.pull(local, wanted)
            except MissingRevision as error:  # The user named it: nothing was listed yet.
                raise CannotGoOn(f"{error}{BY_ID}") from None
        self._check_vcs()
        refs = {name: value for name, value in self._knowledge.refs().items() if self._may_list(name)}
        lines = _format(self._knowledge.vcs.partition(" ")[2])
        head = self._knowledge.settings.get(HEAD, b"")
        if head in refs:
            lines.append(b"@" + head + b" HEAD")
        for name, value in sorted(refs.items()):
            lines += _listed(name, value[0])
        self._answer(*lines, b"")

    def _may_list(self, name: bytes) -> bool:
        """Tell whether a ref is listed to git. A ref whose name git refuses is left out, because git would otherwise
        fail for all refs."""
        if not _sayable(name):
            return False
        problem = system_of(self._knowledge.vcs).ref_problem(name)
        if problem:
            shown = name.decode("utf-8", "backslashreplace")
            self.terminal.say(f"hpss: {self._location.key}: the ref {shown!r} is left out: {problem}")
        return not problem

    def _check_vcs(self) -> None:
        vcs = self._knowledge.vcs
        if vcs and vcs not in FORMATS:
            raise WrongVcs(path_in_words(self._location), vcs, "git")

    def _fetch(self, batch: Sequence[bytes]) -> None:
        local = self._local_or_fail("fetch")
        if self._knowledge.vcs not in ("", local.vcs):  # A clone changes its format to the listed one.
            local = self._reopened("fetch")
        ids = {bytes.fromhex(line.partition(b" ")[0].decode("ascii")) for line in batch}
        self._fetched.sought = b"".join([line + b"\n" for line in batch])
        self._fetched.bring(local, ids, as_pack=self._options.cloning)
        # Git may be told which file keeps a pack (`lock PATH`), but not a path with a newline. It has written its refs
        # when it ends this program, and `close` removes all such files.
        self._answer(b"")

    # -- push

    def _list_for_push(self) -> None:
        local = self._local_or_fail("push")
        expected = self._values_to_list(local) if self._hint.command == "push" else self._asked()
        self._listed = dict.fromkeys(self._knowledge.refs(), NO_TIP)
        self._listed.update((name, tip) for name, tip in expected.items() if tip)
        listed = sorted(self._listed.items())
        lines = [(tip.hex().encode() or b"?") + b" " + name for name, tip in listed if _sayable(name)]
        # Git is told its own format, as the remote's may have changed: the server refuses a wrong one.
        self._answer(*_format(local.object_format), *lines, b"")

    def _asked(self) -> Mapping[bytes, bytes]:
        """Get the current refs from the server, and return them. Git decides on these as it does with its own
        servers."""
        self._cached = None
        self._ask_refs()
        return {name: value[0].id for name, value in self._knowledge.refs().items()}

    def _values_to_list(self, local: GitRepository) -> Mapping[bytes, bytes]:
        """Return the values to list: those of leased refs, or of all refs if the server must be asked."""
        known = self._knowledge
        lacking = local.is_shallow or local.is_partial  # It lacks objects that an unknown remote may need.
        refspecs = Refspecs(self._hint, self._remote, local)
        if must_ask(refspecs, known.refs()) or (lacking and not known.met):
            return self._asked()
        self._cached = refspecs
        return self._leased(local, refspecs) if self._hint.leases and not self._hint.forces else {}

    def _leased(self, local: GitRepository, refspecs: Refspecs) -> Mapping[bytes, bytes]:
        """Return the values to list of leased refs."""
        leases = Leases(self._hint, self._remote, local, refspecs, self._knowledge.refs())
        if leases.must_ask:
            return self._asked()
        self._settled = leases.settled
        return leases.expected

    def _ask_refs(self) -> None:
        try:
            self._repository.learn_refs()
        except NoSuchRepository:  # The push will create it; the remembered one is gone.
            self._knowledge.forget()

    def _push(self, batch: list[bytes]) -> None:
        local = self._local_or_fail("push")
        # Git sends a ref whose lease differs from what was listed only if force overrides the lease.
        leases = self._options.leases.items()
        self._options.leases = {ref: tip for ref, tip in leases if self._listed.get(ref, NO_TIP) == tip}
        omitted = self._settled.keys() - {line.rpartition(b":")[2] for line in batch}
        for ref in sorted(omitted):
            tip = self._options.leases[ref] = self._settled[ref]
            batch.append(tip.hex().encode() + b":" + ref)
        push = GitPush(self._location, self._repository, local, self._options)
        lines = push.run(batch, self._cached, self._listed)
        self._check_vcs()
        self._answer(*lines, b"")


def _format(object_format: str) -> list[bytes]:
    """Return the line with the format of the listed ids; none for sha1, which git assumes."""
    return [] if object_format in ("", "sha1") else [b":object-format " + object_format.encode()]


def _listed(name: bytes, tip: Tip) -> list[bytes]:
    """Return the lines of one ref: its id and, for an annotated tag, the id of the object that it peels to."""
    lines = [tip.id.hex().encode() + b" " + name]
    if len(tip.attributes) == len(tip.id):
        lines.append(tip.attributes.hex().encode() + b" " + name + b"^{}")
    return lines


def _sayable(name: bytes) -> bool:
    """Tell whether a name can be a word in a line of git's protocol. All names that git allows can."""
    return bool(name) and min(name) > 0x20 and 0x7F not in name
