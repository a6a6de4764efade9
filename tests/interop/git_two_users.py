"""Two users' random pushes on a server, compared with the same over git's own protocol.

Both users create, move and delete branches and tags with few names, so that a user's knowledge of the remote is often
stale.
"""

from __future__ import annotations

import random
from pathlib import Path

from git_sides import Done, Pair, Served, Side, peer_refs, server_refs

USERS = ("a", "b")

NAMES = ("x", "y", "topic")
"""The names of branches and of tags."""

START = r"""
git init -q --bare "$SIDE/peer"
git init -q a; git -C a remote add origin "$URL"
a commit one; a git branch topic; a commit two; a git push -q origin main topic
as b git clone -q "$URL" b
"""


class TwoUsers:
    """Both users on both sides."""

    def __init__(self, folder: Path, served: Served, seed: int) -> None:
        self.random = random.Random(seed)
        self.served = served
        self.path = f"git-two-{seed}"
        gits = f"{folder}/gits"
        self.both = Pair(
            Side(folder / "ours", served.url(self.path), served), Side(folder / "gits", f"file://{gits}/peer")
        )
        self.both.prepare(START)
        self.log: list[str] = [f"seed {seed}"]
        self.pushes = 0
        """The number of successful pushes."""
        self._count = 0

    def step(self) -> None:
        """Do one random thing as a random user."""
        chance = self.random
        user = chance.choice(USERS)
        action = chance.choice([*[self.push] * 8, *[self.commit] * 2, *[self.local] * 3, self.fetch])
        ours, gits = self._run(user, action())
        report = "\n".join([*self.log[-25:], f"ours: {ours.status}\n{ours.said}", f"git's: {gits.status}\n{gits.said}"])
        assert ours.status == gits.status, report
        if action == self.push:
            self.pushes += ours.status == 0
            assert server_refs(self.served, self.path) == peer_refs(self.both.gits), report
        state, expected = self.both.states()
        assert state == expected, report

    def _run(self, user: str, command: str) -> tuple[Done, Done]:
        self.log.append(f"{user} {command}")
        return self.both.run(f"{user} {command}")

    def commit(self) -> str:
        self._count += 1
        return f"commit n{self._count}"

    def local(self) -> str:
        """Return a command that changes the user's own branches and tags."""
        name, start = self.random.choice(NAMES), self.random.choice(["main", "main~1", "HEAD", "origin/main"])
        message = f"{name} {self._count}"
        return self.random.choice(
            [
                f"git branch -f {name} {start}",
                f"git branch -D {name}",
                f"git tag -f {name} {start}",
                f"git tag -f -m '{message}' {name} {start}",
                f"git tag -d {name}",
                f"git checkout -q -B {name} {start} --",
                "git checkout -q main --",
                "git checkout -q --detach",
                "git reset -q --hard origin/main",
            ]
        )

    def fetch(self) -> str:
        return self.random.choice(["git fetch -q", "git fetch -q --prune", "git fetch -q --tags --force"])

    def push(self) -> str:
        one, other = self.random.choice(NAMES), self.random.choice(NAMES)
        specs = [
            "main",
            f"main:{one}",
            f"HEAD:{one}",
            f"{one}:{other}",
            f"refs/tags/{one}:{other}",
            f"main~1:{one}",
            f":{one}",
            f":{one} main:{other}",
            f"main:{one} main~1:{other}",
            f"--delete {one} {other}",
            f":refs/tags/{one}",
            f"{one}",
            f"tag {one}",
            ":",
            "'refs/heads/*'",
            f"--prune 'refs/heads/*' refs/tags/{one}",
            "--prune 'refs/tags/*'",
            "--all",
            "--tags",
        ]
        options = ["", "", "", "-f", "--atomic", "--follow-tags", "--dry-run", "--force-with-lease"]
        options += ["--force-with-lease --force-if-includes", f"--force-with-lease={one}", "-c push.followTags=true"]
        if self.random.random() < 0.05:
            return "git push --mirror origin"
        option, spec = self.random.choice(options), self.random.choice(specs)
        if option.startswith("-c"):
            return f"git {option} push origin {spec}"
        return f"git push {option} origin {spec}"

    def check_sound(self) -> None:
        self.both.ours.check_sound()


def run(folder: Path, served: Served, seed: int, steps: int) -> int:
    """Run so many steps, and return the number of successful pushes."""
    users = TwoUsers(folder, served, seed)
    for _ in range(steps):
        users.step()
    users.check_sound()
    return users.pushes
