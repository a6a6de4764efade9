"""Two users' random commands of hg on a server, compared with the same on a folder.

`python tests/interop/hg_two_users.py SEED STEPS` runs more steps than the test does. Each user has a command server of
Mercurial's (`hg serve --cmdserver`), which must keep nothing from one command to the next.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from git_sides import Served, environment
from git_two_users import main
from hg_histories import verify
from hg_sides import (
    HgPair,
    HgSide,
    peer_bookmarks,
    peer_heads,
    peer_markers,
    server_bookmarks,
    server_heads,
    server_markers,
)

USERS = ("a", "b")


class CommandServer:
    """An `hg` process in which one user runs all commands."""

    def __init__(self, side: HgSide, user: str) -> None:
        self._variables = {"HGRCPATH": str(side.folder / ".hgrc"), "XDG_CACHE_HOME": str(side.folder / ".cache" / user)}
        self._above = side.folder
        self.folder = side.folder / user
        self._errors = side.folder / f"{user}-errors"
        self._start()

    def _start(self) -> None:
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "hg"), "serve", "--cmdserver", "pipe"],
                cwd=self._above,
                env={**environment(self._above), **self._variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._read()

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command in the user's repository, and return its status and output.

        After strips and amends, Mercurial 7.2.4 may take a changeset for one of another branch: its cache of branches
        is then wrong, with any remote. The next push ends the command server, and is run again without the cache.
        """
        try:
            return self._run(*words)
        except EOFError:
            said = self._errors.read_text()
            assert "in _headssummary" in said, said
            self.close()
            for cache in (self.folder / ".hg/cache").glob("rbc-*"):
                cache.unlink()
            self._start()
            return self._run(*words)

    def _run(self, *words: str) -> tuple[int, str]:
        assert self._process.stdin is not None
        given = "\0".join(["-R", str(self.folder), *words] if words[0] != "init" else words).encode()
        self._process.stdin.write(b"runcommand\n" + struct.pack(">I", len(given)) + given)
        self._process.stdin.flush()
        said = b""
        while True:
            channel, content = self._read()
            if channel == b"r":
                return struct.unpack(">i", content)[0], said.decode("utf-8", "replace")
            said += content

    def _read(self) -> tuple[bytes, bytes]:
        assert self._process.stdout is not None
        head = self._process.stdout.read(5)
        if not head:
            raise EOFError
        channel, length = head[:1], struct.unpack(">I", head[1:])[0]
        return channel, self._process.stdout.read(length) if channel.islower() or channel in b"oer" else b""

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(30)


class TwoUsers:
    """Both users on both sides."""

    def __init__(self, folder: Path, served: Served, seed: int) -> None:
        self.random = random.Random(seed)
        self.served = served
        self.path = f"hg-two-{seed}"
        ours = HgSide(folder / "ours", served.url(self.path), served)
        hgs = HgSide(folder / "hgs", f"{folder}/hgs/peer")
        if self.random.random() < 0.7:
            for side in (ours, hgs):
                with open(side.folder / ".hgrc", "a") as file:
                    file.write("[experimental]\nevolution = all\n")
        self.both = HgPair(ours, hgs)
        self.servers = {(side, user): CommandServer(side, user) for side in (ours, hgs) for user in USERS}
        for server in self.servers.values():
            assert server.run("init", str(server.folder))[0] == 0
        ours.prepare('hg init "$URL"')
        hgs.prepare("hg init peer")
        self.is_publishing = self.random.random() < 0.5
        self.evolves = self.random.random() < 0.7
        """True if the server exchanges markers."""
        self._configure()
        self.log: list[str] = []
        self.said = ""
        """The last output of both hgs."""
        self._count = 0
        if self.random.random() < 0.8:  # Else they begin apart, and what they have is unrelated.
            self.commit("a")
            self.run("a", "push", "URL")
            self.run("b", "pull", "-u", "URL")

    def _configure(self) -> None:
        config = 'smartserver config "$URL"'
        settings = ""
        if not self.is_publishing:
            self.both.ours.prepare(f"{config} publishing no")
            settings += "[phases]\npublish = no\n"
        if self.evolves:
            self.both.ours.prepare(f"{config} evolution yes")
        else:
            settings += "[experimental]\nevolution = createmarkers, allowunstable\n"
        (self.both.hgs.folder / "peer" / ".hg" / "hgrc").write_text(settings)

    def close(self) -> None:
        for server in self.servers.values():
            server.close()

    def run(self, user: str, *words: str) -> int:
        """Run the same command on both sides, which must end with the same status."""
        done = []
        for side in (self.both.ours, self.both.hgs):
            done.append(self.servers[side, user].run(*[side.url if word == "URL" else word for word in words]))
        (status, said), (expected, hg_said) = done
        self.log.append(f"{user}: hg {' '.join(words)} -> {status}")
        self.said = f"--- ours: {status}\n{said}--- hg's: {expected}\n{hg_said}"
        assert status == expected, self.report()
        return status

    def report(self, more: object = "") -> str:
        return "\n".join([*self.log[-30:], self.said, str(more)])

    def step(self) -> None:
        """Do one random thing as a random user."""
        chance = self.random
        user = chance.choice(USERS)
        often = [*[self.commit] * 5, *[self.push] * 5, *[self.pull] * 4, *[self.merge] * 2]
        often += [self.amend] * 2
        rarely = [self.bookmark, self.branch, self.ask, self.strip, self.publish, self.prune]
        chance.choice([*often, *rarely])(user)
        if chance.random() < 0.01:
            self.make_again()

    def commit(self, user: str) -> None:
        self._count += 1
        name = self.random.choice(["f1", "f2", f"n{self._count}"])
        for side in (self.both.ours, self.both.hgs):
            (side.folder / user / name).write_text(f"{self._count}\n")
        self.run(user, "commit", "-q", "-A", "-m", f"change {self._count}")

    def push(self, user: str) -> None:
        new = "--new-branch"
        options = self.random.choice([[], [], [], [new], ["-f", new], ["-r", "."], ["-B", "mark"]])
        self.run(user, "push", *options, "URL")

    def pull(self, user: str) -> None:
        options = self.random.choice([[], [], ["-u"], ["-r", "default"], ["-b", "default"], ["-B", "mark"]])
        self.run(user, "pull", *options, "URL")

    def merge(self, user: str) -> None:
        if self.run(user, "merge", "-q", "--tool", ":local") == 0:
            self.run(user, "commit", "-q", "-m", "a merge")
        else:
            self.run(user, "update", "-q", "-C", self.random.choice(["default", "tip", "."]))

    def bookmark(self, user: str) -> None:
        where, name = self.random.choice(["tip", "default"]), self.random.choice(["mark", "other"])
        self.run(user, "bookmark", "-f", "-r", where, name)

    def branch(self, user: str) -> None:
        self._count += 1
        if self.random.random() < 0.3:
            self.run(user, "commit", "-q", "--close-branch", "-m", f"close {self._count}")
            return
        self.run(user, "branch", "-q", self.random.choice(["one", "two"]), "-f")
        self.commit(user)

    def amend(self, user: str) -> None:
        self._count += 1
        self.run(user, "commit", "-q", "--amend", "-m", f"change {self._count}")

    def prune(self, user: str) -> None:
        """Make the newest changeset obsolete, without a successor, and update to another."""
        status, said = self.servers[self.both.ours, user].run("log", "-r", "last(draft())", "-T", "{node}")
        if status == 0 and said:
            self.run(user, "debugobsolete", "--record-parents", said)
            self.run(user, "update", "-q", "-C", "tip")

    def publish(self, user: str) -> None:
        self.run(user, "phase", "--public", "-r", self.random.choice(["last(all())", "default"]))

    def strip(self, user: str) -> None:
        self.run(user, "--config", "extensions.strip=", "strip", "-q", "--no-backup", "-r", "tip")

    def make_again(self) -> None:
        """Delete the repository on the server, and make an empty one."""
        self.log.append("recreated")
        self.both.ours.prepare('smartserver delete --yes "$URL" && hg init "$URL"')
        self.both.hgs.prepare("rm -rf peer; hg init peer")
        self._configure()

    def ask(self, user: str) -> None:
        words = [["incoming"], ["outgoing"], ["identify", "-r", "tip"], ["incoming", "-B"], ["outgoing", "-B"]]
        self.run(user, *self.random.choice(words), "URL")

    def check(self) -> None:
        """Check that both sides are equal."""
        ours, hgs = self.both.ours, self.both.hgs
        one, other = ours.has(), hgs.has()
        mine = {user: sorted({*one[user]} - {*other[user]}) for user in USERS}
        hgs_own = {user: sorted({*other[user]} - {*one[user]}) for user in USERS}
        assert one == other, self.report(f"ours alone: {mine}\nhg's alone: {hgs_own}")
        if (self.served.root / self.path).exists():
            assert server_heads(self.served, self.path) == peer_heads(hgs), self.report()
            assert server_bookmarks(self.served, self.path) == peer_bookmarks(hgs), self.report()
            assert server_markers(self.served, self.path) == peer_markers(hgs), self.report()

    def check_sound(self) -> None:
        for user in USERS:
            assert verify(self.both.ours.folder / user)[0] == 0


def run(folder: Path, served: Served, seed: int, steps: int) -> int:
    """Run so many steps, and return the number of pushes that changed something on the server."""
    users = TwoUsers(folder, served, seed)
    try:
        for _ in range(steps):
            users.step()
            users.check()
        users.check_sound()
        return sum(" push " in line and line.endswith("-> 0") for line in users.log)
    finally:
        users.close()


if __name__ == "__main__":
    main(run)
