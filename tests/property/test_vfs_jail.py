"""server.jailed, server.jail: no request of file-level verbs reaches anything outside the served folder.

Names and links are random combinations of parts that have led out of such places: `..`, absolute paths, NUL,
backslashes, names that look like dots, links to links. The operating system, and not the code under test, decides where
a path leads.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from dialogs import Dialog, message
from hypothesis import given, target
from hypothesis import strategies as st

from smartserver.errors import InternalError
from smartserver.server.jail import is_hidden
from smartserver.server.site import Site
from smartserver.server.startup import inside_of
from smartserver.verbs import vfs
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.vfs import (
    BringRequest,
    LookRequest,
    PathRequest,
    RangeField,
    ReadvRequest,
    RenameRequest,
    WithdrawRequest,
)
from smartserver.wire.messages import Failure, Reply, Status
from transports.local import LocalTransport

SECRET = b"zq nobody may read this zq"
UNSPEAKABLE = "zq nobody may see this name zq"
"""The name of a file outside. No test asks for it, so only a listing could return it."""

ODD = [
    "..", "..", "..", ".", "", "a\0", "\0", "\\", "..\\", "a\\..\\..", "%2e%2e", "..;", "... ", "~", ". ", ".. ",
    "\uff0e\uff0e", "\u2025", "\u2024\u2024", "e\u0301", "\u202e..", "\ud83d", "\n", ".hidden", "C:", "nul",
    "x" * 255, "x" * 256, "x" * 5000, "\u00e9" * 200,
]  # fmt: skip
"""Invalid names, names that some system took for `..` (wide, leader and combining characters), and too long names."""
KNOWN = ["a", "b", "link", "other", "secret", "served", "served-not"]
parts = st.sampled_from(KNOWN) | st.sampled_from(ODD) | st.text(max_size=3)
places = st.sampled_from(["link", "other", "a/link", "a/b/link", "a/other", "served"])
"""The places of links."""
names = st.lists(st.sampled_from([*KNOWN, "..", "."]), max_size=3).map("/".join)
leads = st.builds(os.path.join, st.sampled_from(["", "..", "../..", "../../..", "TOP", "TOP", "ROOT"]), names)
"""The targets of links."""
torn = st.builds(lambda start, them: start + "/".join(them), st.sampled_from(["", "/", "//", "../"]), st.lists(parts))
paths = places | st.builds("{}/{}".format, places, st.sampled_from(KNOWN)) | names | torn


def calls(path: str, target: str) -> list[tuple[AnyVerb, Arguments]]:
    """Return a use of each verb."""
    return [
        (vfs.has, PathRequest(path)),
        (vfs.get, LookRequest(path)),
        (vfs.readv, ReadvRequest(path, [RangeField(0, 99)])),
        (vfs.list_dir, LookRequest(path)),
        (vfs.stat, LookRequest(path)),
        (vfs.append, BringRequest(path, b"x")),
        (vfs.put, BringRequest(path, b"x")),
        (vfs.mkdir, PathRequest(path)),
        (vfs.rename, RenameRequest(path, target)),
        (vfs.rename, RenameRequest(target, path)),
        (vfs.publish, RenameRequest(path, target)),
        (vfs.publish, RenameRequest(target, path)),
        (vfs.get_published, LookRequest(path)),
        (vfs.withdraw, WithdrawRequest(path, target)),
        (vfs.withdraw, WithdrawRequest(target, path)),
        (vfs.delete, PathRequest(path)),
        (vfs.rmdir, PathRequest(path)),
        (vfs.sync_dir, PathRequest(path)),
    ]


def outside(top: Path) -> dict[str, object]:
    """Return everything that is not served: content, links and times of last change."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(top):
        if Path(folder) == top:
            folders.remove("served")
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = Path(path).read_bytes() if name in files and not os.path.islink(path) else b""
            found[path] = (status.st_mtime_ns, status.st_ino, content)
    return found


def leads_out(root: Path, path: str) -> bool:
    """Tell whether the operating system resolves a path to a place outside `root`."""
    try:
        real = os.path.realpath(os.path.join(root, path))
    except ValueError:  # A NUL: it leads nowhere.
        return False
    return real != str(root) and not real.startswith(f"{root}/")


def is_lawful(path: str) -> bool:
    """Tell whether a path is valid."""
    odd = any(part in ("", "..", ".") or part.startswith(".") or "\\" in part for part in path.split("/"))
    return not path or not (odd or "\0" in path)


def in_folder(do: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name))
        root = top / "served"
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "secret").write_bytes(b"inside")
        (root / "secret").write_bytes(b"inside")
        for folder in (top, top / "served-not", top / "a", top / "a" / "b"):
            folder.mkdir(exist_ok=True)
            (folder / "secret").write_bytes(SECRET)
            (folder / UNSPEAKABLE).write_bytes(SECRET)
        do(root)


@given(st.lists(st.tuples(places, leads), min_size=1, max_size=4), st.just("") | st.just("") | paths, paths, paths)
def test_nothing_gets_out(links: list[tuple[str, str]], base: str, path: str, other: str) -> None:
    def ask(root: Path) -> None:
        top = root.parent
        for place, lead in links:
            to = lead.replace("TOP", str(top)).replace("ROOT", str(root)) or "."
            if not os.path.lexists(root / place):
                (root / place).symlink_to(to)
        transport = LocalTransport(root)
        dialog = Dialog(Site(transport, inside=inside_of(transport), allows_vfs=True))
        before = outside(top)
        led = 0
        for call, of_nothing in zip(calls(path, other), calls("absent", other), strict=True):
            out = leads_out(root, f"{base.strip('/')}/{path}".strip("/"))
            led += out
            try:
                answer = dialog.ask(message(call, path=base))
            except UnicodeEncodeError:
                return  # No client can say it.
            done = not isinstance(answer, Failure) and answer.outcomes[0].status == Status.DONE
            fault = answer.fault if isinstance(answer, Failure) else answer.outcomes[0].fault
            assert fault is None or fault.code != InternalError.code, call
            if done and is_hidden(path):  # It is not there, wherever it may be.
                nothing = dialog.ask(message(of_nothing, path=base))
                assert isinstance(answer, Reply)
                assert isinstance(nothing, Reply)
                assert answer.outcomes == nothing.outcomes
            else:
                assert not (done and (out or not is_lawful(path))), (call, answer)
            assert outside(top) == before, (call, answer)
        said = bytes(dialog.raw)
        assert SECRET not in said
        assert UNSPEAKABLE.encode() not in said
        target(float(led), label="calls that would have led out")

    in_folder(ask)
