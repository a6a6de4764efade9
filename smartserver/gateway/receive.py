"""A push of stock git (gitprotocol-pack(5), "Pushing Data To a Server"): its request, and the result for each ref.

The pack is indexed in a quarantine, for which git also finds the objects of the cache. The new revisions go from there
to the store in one request, with the client's old values as leases. The store decides for each ref, and the client gets
the answer once the change is durable. Then the quarantine is deleted in any case: the cache gets objects only from the
store, and only if a ref reaches them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

import smartserver
from smartserver.client.faults import lines as fault_lines
from smartserver.client.push import PushRequest
from smartserver.client.updates import NewRepository, Outcome, RefUpdate, UpdateOutcome
from smartserver.errors import HeadBranch, NotDone, StaleLease
from smartserver.gateway import git_programs
from smartserver.gateway.gateway import NEW_VCS, Gateway, Visitor
from smartserver.gateway.pkt_line import FLUSH, BadRequest, Read, band, line, read_lines
from smartserver.plugins.git.push import LocalSource, new_head, objection, peeled
from smartserver.records.model import RevisionId
from smartserver.vcs.base import CannotSend, ToolFailed, VcsError
from smartserver.vcs.git.bare import open_bare
from smartserver.vcs.git.names import HEAD
from smartserver.vcs.git.objects import MissingObject, ReadingEnded
from smartserver.vcs.git.repository import GitRepository, failure
from smartserver.verbs.rules import Rule
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.gateway.cache import Lease, StoreState
    from smartserver.records.model import Plan
    from smartserver.wire.messages import Advice

CAPABILITIES: Final = "report-status delete-refs side-band-64k quiet atomic ofs-delta push-options"

MAX_COMMANDS: Final = 16 << 20
"""The most bytes of the commands of a push: 100,000 refs of 160 bytes."""

MAX_OPTIONS: Final = 64 << 10
"""The most bytes of the push options."""

MAX_REASON: Final = 4000
"""The most bytes of the reason of a refusal, on one line; a hook's output has at most half as many."""

NOT_ATOMIC: Final = "atomic push failed"

CUT_OFF: Final = (
    "cannot push from a shallow repository: the server lacks the history that is cut off there "
    "(run `git fetch --unshallow` from where it was cloned)"
)
INCOMPLETE: Final = "missing necessary objects"
"""The reasons with which a ref is refused if parts of its history are neither in the pack nor on the server. The second
reason is that of git's own server."""


class Command(msgspec.Struct, frozen=True):
    """A change of one ref. `old` or `new` is empty if the ref is absent before or after the change."""

    old: RevisionId
    new: RevisionId
    ref: bytes


class ReceiveRequest(msgspec.Struct, frozen=True):
    """The part of a push before its pack."""

    commands: Sequence[Command]
    capabilities: frozenset[bytes]
    options: Sequence[bytes] = ()
    """The push options (`git push -o`)."""
    is_shallow: bool = False
    """True if the client has a shallow repository."""

    @property
    def has_pack(self) -> bool:
        """True if a pack follows."""
        return any(command.new for command in self.commands)


def advertisement(state: StoreState | None) -> Iterator[bytes]:
    """Yield the advertisement of a repository's refs for a client that pushes. `state`: None if the repository does not
    exist yet."""
    vcs = NEW_VCS if state is None else state.vcs
    object_format = vcs.partition(" ")[2]
    said = f"{CAPABILITIES} object-format={object_format} agent=smartserver/{smartserver.__version__}".encode()
    refs = {} if state is None else state.refs()
    first = True
    for name, value in refs.items():
        yield line(value[0].id.hex().encode() + b" " + name + (b"\0" + said if first else b"") + b"\n")
        first = False
    if first:
        zeros = b"0" * (64 if object_format == "sha256" else 40)
        yield line(zeros + b" capabilities^{}\0" + said + b"\n")
    yield FLUSH


def read_request(read: Read) -> ReceiveRequest:
    """Return the request of a client, up to its pack. A client that only tests whether it may push sends no commands.

    Raises:
        BadRequest: the request is malformed.
    """
    commands: list[Command] = []
    capabilities: frozenset[bytes] = frozenset()
    is_shallow = False
    for payload in read_lines(read, MAX_COMMANDS):
        text, nul, said = payload.partition(b"\0")
        if nul and not commands:
            capabilities = frozenset(said.split())
        text = text.removesuffix(b"\n")
        # The store has the whole history, so the boundary of a client's shallow one does not matter.
        if text.startswith(b"shallow "):
            is_shallow = True
        else:
            commands.append(_command(text))
    names = [command.ref for command in commands]
    if len(set(names)) != len(names):
        raise BadRequest("two commands for one ref")
    options = read_lines(read, MAX_OPTIONS) if commands and b"push-options" in capabilities else ()
    return ReceiveRequest(commands, capabilities, [each.removesuffix(b"\n") for each in options], is_shallow)


def _command(text: bytes) -> Command:
    old, _, rest = text.partition(b" ")
    new, _, ref = rest.partition(b" ")
    try:
        ids = [bytes.fromhex(each.decode("ascii")) for each in (old, new)]
    except ValueError:
        raise BadRequest(f"expected `OLD NEW REF`, got {text[:100]!r}") from None
    if not ref or len(ids[0]) != len(ids[1]) or len(ids[0]) not in (20, 32):
        raise BadRequest(f"expected `OLD NEW REF`, got {text[:100]!r}")
    before, after = (each if any(each) else b"" for each in ids)
    return Command(before, after, ref)


class Receive:
    """One push."""

    def __init__(self, gateway: Gateway, visitor: Visitor, path: str, request: ReceiveRequest) -> None:
        self._gateway = gateway
        self._visitor = visitor
        self._path = path
        self._request = request
        self._words: list[str] = []
        """Messages of the server for the user."""

    def run(self, pack: int) -> bytes:
        """Carry out the push and return the answer. `pack`: a descriptor from which the pack is read, if there is one.

        Raises:
            CodedError, OtherSystem: the push is refused before its pack is read: the user lacks a permission, or the
                repository cannot be read or is not git's. The answer has the reasons of later refusals.
            OSError: a file of the server cannot be written.
        """
        if not self._request.commands:
            return b""
        said = self._carried_out(pack)
        return b"".join(self._answer(*said))

    def _carried_out(self, pack: int) -> tuple[str, dict[bytes, str]]:
        """Carry out the push. Return the reason why the pack could not be read, or an empty string, and the reasons of
        refused refs."""
        gateway, path, commands = self._gateway, self._path, self._request.commands
        state = gateway.state_to_push(self._visitor, path)
        with ExitStack() as until:
            folder = until.enter_context(gateway.quarantine())
            lease = None
            if state is not None:
                lease = gateway.lease(path, state) or gateway.bring(path)
                until.callback(lease.close)
            local = until.enter_context(_quarantined(folder, lease))
            if self._request.has_pack:
                command = ["--git-dir", local.git_dir, "index-pack", "--stdin", "--fix-thin"]
                status, words = git_programs.run(command, local.environment, pack)
                if status:
                    why = gateway.words(failure("index-pack", status, words))
                    return why, {each.ref: "unpacker error" for each in commands}
            try:
                return "", self._push(local, state)
            except (CodedError, VcsError) as error:
                return "", {each.ref: self._words_of(error) for each in commands}

    def _push(self, local: GitRepository, state: StoreState | None) -> dict[bytes, str]:
        atomic = b"atomic" in self._request.capabilities
        refused: dict[bytes, str] = {}
        updates: list[RefUpdate] = []
        for command in self._request.commands:
            update = _update(local, command)
            why = "its object is not in the pack" if update is None else objection(local, update).decode()
            if why:
                refused[command.ref] = why
            elif update is not None:
                updates.append(update)
        if refused and atomic:
            return {update.ref: NOT_ATOMIC for update in updates} | refused
        if not updates:
            return refused
        remote = self._gateway.remote(self._visitor, self._path, state)
        remote.advised = self._advised
        new = None if state is not None else NewRepository(local.vcs, local.kinds, {HEAD: new_head(local, updates)})
        source = _Source(local, () if state is None else local.refs().values())
        options = [option.decode("utf-8", "backslashreplace") for option in self._request.options]
        outcomes = remote.push(PushRequest(updates, source, new, atomic=atomic, options=options)).refs
        return refused | {done.update.ref: reason(done) for done in outcomes if done.outcome is Outcome.REFUSED}

    def _words_of(self, error: CodedError | VcsError) -> str:
        """Return the reason, in git's words, for which the whole push is refused."""
        if isinstance(error, CannotSend) and isinstance(error.__cause__, (ToolFailed, MissingObject, ReadingEnded)):
            return CUT_OFF if self._request.is_shallow else INCOMPLETE
        return self._gateway.words(error)

    def _advised(self, found: Sequence[Advice]) -> None:
        """Keep messages about faults of the objects, for the user."""
        self._words += [f"{words}\n" for words in fault_lines(found, self._path, "git fsck")]

    def _answer(self, unpack: str, refused: dict[bytes, str]) -> Iterator[bytes]:
        capabilities = self._request.capabilities
        if b"report-status" not in capabilities:
            return
        report = line(f"unpack {_on_a_line(unpack) if unpack else 'ok'}\n".encode())
        for command in self._request.commands:
            why = refused.get(command.ref)
            if why is None:
                report += line(b"ok " + command.ref + b"\n")
            else:
                report += line(b"ng " + command.ref + b" " + _on_a_line(why).encode() + b"\n")
        report += FLUSH
        if b"side-band-64k" in capabilities:
            for words in self._words:
                yield from band(2, words.encode())
            yield from band(1, report)
            yield FLUSH
        else:
            yield report


class _Source(LocalSource, frozen=True):
    """The quarantine as the source of a push. This process is the server, so the tips of its refs are known haves."""

    known: Iterable[RevisionId]

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """Return the revisions that the server lacks."""
        return super().plan(tips, [*haves, *self.known])


@contextlib.contextmanager
def _quarantined(folder: str, lease: Lease | None) -> Iterator[GitRepository]:
    """Open the repository into which a push is received. New objects are written to the quarantine."""
    environment = git_programs.environment()
    if lease is None:
        with open_bare(os.path.join(folder, "new.git"), NEW_VCS, environment) as repository:
            yield repository
        return
    objects = os.path.join(folder, "objects")
    for name in ("pack", "info"):
        os.makedirs(os.path.join(objects, name))
    with open(os.path.join(objects, "info", "alternates"), "xb") as file:
        file.write(os.fsencode(os.path.join(lease.folder, "objects")) + b"\n")
    with GitRepository(lease.folder, environment | {"GIT_OBJECT_DIRECTORY": objects}) as repository:
        yield repository


def _update(local: GitRepository, command: Command) -> RefUpdate | None:
    """Return the change of a ref for the store; None if the object is missing."""
    if not command.new:
        return RefUpdate(command.ref, None, expected=command.old or None)
    found = local.find(command.new.hex().encode())
    if found is None:
        return None
    return RefUpdate(command.ref, command.new, Rule.LEASE, expected=command.old, attributes=peeled(local, found))


def reason(updated: UpdateOutcome) -> str:
    """Return the reason why the store refused a ref, in the words of git's own server if it has any."""
    match updated.error:
        case StaleLease():
            return "fetch first: somebody else changed it meanwhile"
        case HeadBranch():
            return "deletion of the current branch prohibited"
        case NotDone():
            return NOT_ATOMIC
        case None:
            return "no reason given"
        case error:
            return str(error)


def _on_a_line(text: str) -> str:
    """Return a reason on one line, cut to `MAX_REASON` bytes."""
    shown = "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
    return shown.encode()[:MAX_REASON].decode(errors="ignore")


def reader(descriptor: int) -> Callable[[int], bytes]:
    """Return a function that reads from a descriptor, never more than requested, so that a program can read the
    rest."""

    def read(size: int) -> bytes:
        found = b""
        while len(found) < size and (part := os.read(descriptor, size - len(found))):
            found += part
        return found

    return read
