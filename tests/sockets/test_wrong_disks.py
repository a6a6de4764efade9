"""The server may not write, or has no space: the user gets one line, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from needs import needs
from serving import NOISE, Done, Server, User, check_store, is_tidy, run, server_refs, wait_until, write_history

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

MAIN = "refs/heads/main"

AS_ANYBODY = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: what lets root ignore permissions.
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
        sys.exit("cannot give up root's privileges")
os.execv(sys.executable, [sys.executable, "-m", "smartserver.cli.main", *sys.argv[1:]])
"""
"""A server that is bound by permissions, even if the tests run as root."""


@pytest.fixture
def user(tmp_path: Path) -> User:
    user = User(tmp_path / "user")
    write_history(user, "w", 3, seed="disk", size=500)
    return user


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def commits_of(user: User) -> list[str]:
    return user.git("rev-list", "--reverse", "main", folder="w").worked().out.split()


def test_a_root_that_cannot_be_read(root: Path) -> None:
    root.chmod(0o000)
    try:
        done = run("-c", AS_ANYBODY, "serve", str(root), "--listen", "127.0.0.1:0")
    finally:
        root.chmod(0o755)
    assert done.status == 1
    assert done.err.startswith(f"smartserver: {root} cannot be read by user ")
    assert len(done.err.splitlines()) == 1


def write_bulk(user: User, size: int) -> str:
    """Commit `size` incompressible bytes on top of `main`."""
    (user.home / "w" / "bulk").write_bytes(os.urandom(size))
    user.git("add", "bulk", folder="w").worked()
    user.git("commit", "-q", "-m", "bulk", folder="w").worked()
    return user.tip("w")


def check_full(user: User, root: Path, server: Server, why: str, old: str, bulk: str) -> None:
    """Check that a push without space for it fails with a line, leaves nothing, and that reads still work."""
    for path in ("p", "new"):
        done = user.git("push", server.url(path), f"{bulk}:{MAIN}", folder="w")
        said = done.failed("push")
        assert why in said, said
        assert f"'{path}/" in said, said
        wait_until(lambda path=path: is_tidy(root, path), "nothing is left of it")  # type: ignore[misc]
    assert server_refs(root, "p") == {MAIN: old}
    assert not PackRepository(LocalTransport(root), "new").exists()
    check_store(root, "p")
    user.git("ls-remote", server.url("p")).worked()


@needs("root", "process namespaces")
def test_a_full_disk(user: User, root: Path) -> None:
    """The disk is full in the middle of a pack, then before the first byte, then has space again."""
    old, new, _ = commits_of(user)
    bulk = write_bulk(user, 3 << 20)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(root)], check=True)
    try:
        with Server(root) as server:
            user.git("push", "-q", server.url("p"), f"{old}:{MAIN}", folder="w").worked()
            check_full(user, root, server, "no space left to write", old, bulk)
            wait_until(lambda: "no space left to write" in "".join(server.log), "it is in the log")
            filling = root / "filling"
            with pytest.raises(OSError, match="No space"):
                filling.write_bytes(bytes(4 << 20))
            check_full(user, root, server, "no space left", old, new)
            filling.unlink()
            user.git("push", "-q", server.url("p"), f"{new}:{MAIN}", folder="w").worked()
            assert server_refs(root, "p") == {MAIN: new}
            check_store(root, "p")
            assert not NOISE.search("".join(server.log))
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_a_client_that_has_no_room(user: User, root: Path) -> None:
    """The helper meets the limit on file sizes, and names the repository that it writes to."""
    write_bulk(user, 3 << 20)
    with Server(root) as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
        script = f"ulimit -f 2048; exec git clone {server.url('p')} c"
        done = subprocess.run(
            ["sh", "-c", script], cwd=user.home, env=user.environment, capture_output=True, text=True, check=False
        )
    said = Done(done.returncode, done.stdout, done.stderr).failed("clone")
    assert said == f"{user.home / 'c' / '.git'}: {os.strerror(27)}"
    assert not (user.home / "c").exists()
