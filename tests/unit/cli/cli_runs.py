"""Commands as a user runs them, where they find repositories, and small repositories for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import bzr_samples
from builders import MAIN, History, push, refs_of
from click.testing import CliRunner, Result

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from transports.local import LocalTransport

OTHER = b"refs/heads/other"

Places = tuple[Path, Callable[[str], str]]
"""The folder of the repositories, and a function that names one of them on the command line."""


def run(*words: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(group, [str(each) for each in words], input=answer)


def why(result: Result) -> str:
    """The line the command would end with."""
    assert isinstance(result.exception, CommandError), (result.exception, result.output)
    return str(result.exception)


def repository(folder: Path) -> PackRepository:
    """Open the repository in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return PackRepository(LocalTransport(folder))


def opened(folder: Path) -> Snapshot:
    return PackRepository(LocalTransport(folder)).snapshot()


def refs(folder: Path) -> dict[bytes, bytes]:
    """Return the refs of a repository in a folder, with their tips."""
    return refs_of(PackRepository(LocalTransport(folder)))


def stored(folder: Path, revisions: int = 3) -> History:
    """Make it; what is in it."""
    history = History()
    line = history.line(revisions)
    push(repository(folder), history, line, {MAIN: line[-1]})
    return history


def stored_bzr(folder: Path) -> Path:
    """Make one of Breezy, of one revision."""
    first = bzr_samples.segment(bzr_samples.FIRST, bzr_samples.FIRST_PARENTS)
    bzr_samples.push(repository(folder), first, refs={b".": bzr_samples.FIRST[0].key})
    return folder


def pack_of(folder: Path) -> Path:
    """Its one pack."""
    (found,) = [path for path in folder.rglob("*") if path.suffix == ".pack"]
    return found


def flip(path: Path, at: int) -> None:
    """Damage a byte of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x41
    path.chmod(0o600)
    path.write_bytes(content)


def grow(folder: Path, history: History, count: int = 2, parent: bytes | None = None, ref: bytes = MAIN) -> bytes:
    """More revisions in a repository; the tip."""
    line = history.line(count, parent or list(history.parents)[-1], ref.decode())
    push(repository(folder), history, line, {ref: line[-1]})
    return line[-1]
