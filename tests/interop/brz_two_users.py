"""Two users with separate memories share branches on a server: random commands, beside the same ones on local branches.

`python tests/interop/brz_two_users.py SEEDS STEPS READINGS`: what differs, of so many steps and readings in all.
A command says and does the same in both worlds: its status, its streams, the files and tips of both users, the branches
and tags they share. IDs and times say in which step they were made, so that they are equal too.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from breezy.branch import Branch
from breezy.errors import NotBranchError
from brz_sides import SHIM, Users, in_process
from git_sides import Served

FIXED = """import os

from breezy import osutils

osutils.rand_chars = lambda count: os.environ["BRZ_STEP"]
osutils.compact_date = lambda when: "20240101000000"
"""
"""A plugin that makes IDs of a step."""
BRANCHES = ("trunk", "side", "next")
PLACES = tuple(f"{user}/{tree}" for user in "ab" for tree in ("own", "light", "bound"))
"""A branch with its tree, a lightweight checkout and a bound branch of each user."""
FILES = ("one", "two", "folder/three")
TAGS = ("v1", "v2", "v3")

PLAIN = (
    (r"(?:file://)?@(\w+)/?(?![\w/.])", r"@\1"),
    (r"@(\w+)/?\.bzr/branch/", r"@\1"),  # Where no branch is.
    (r"\d+-\d+-\d+ \d+:\d+:\d+ \+0000", "DATE"),  # Of a file in a tree.
    (r": location is a repository", ""),
    (r"Unable to connect to target of bound branch \S+ => @\w+: (Not a branch: )", r"\1"),
    (r"This transport does not update the working tree of: .*\n", ""),  # It is said of a folder.
    (r"Working tree .* has uncommitted changes.*\n", ""),  # Before or after a branch is found to be gone.
)
"""What differs by its nature, and what stands for it."""
CRASHED = 4
"""Status of a command that fell over a bug of Breezy's: what it says is no example."""


class Tip(NamedTuple):
    """What a branch holds."""

    revno: int
    id: bytes
    tags: Mapping[str, bytes]


class World:
    """Where the shared branches are in one place, which commands call `@`."""

    def __init__(self, folder: Path, served: Served, at: str) -> None:
        self.users = Users(folder, served, folder.name)
        self.at = at
        self._shown = at.replace(self.users.url(""), "URL").replace(str(folder), "HERE")
        (folder / ".fixed").mkdir()
        (folder / ".fixed" / "__init__.py").write_text(FIXED)
        for user in "ab":
            (folder / user).mkdir()

    def run(self, step: int, where: str, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command; its status and streams."""
        located = [word.replace("@", self.at) for word in words]
        fixed = self.users.folder / ".fixed"
        done = self.users.run(where, *located, plugin=f"hpss@{SHIM}:fixed@{fixed}", BRZ_STEP=f"{step:016}")
        return done.status, self._plain(done.out), self._plain(done.err)

    def _plain(self, said: str) -> str:
        said = said.replace(self._shown, "@").replace("HpssBranch(", "BzrBranch7(")
        for pattern, plain in PLAIN:
            said = re.sub(pattern, plain, said)
        return said

    def tip(self, name: str) -> Tip | None:
        """What a shared branch holds; None where there is none."""
        raise NotImplementedError

    def files(self) -> dict[str, bytes]:
        """The users' files, and the tips of their branches."""
        folder = self.users.folder
        found = {}
        for place in PLACES:
            for path in sorted((folder / place).rglob("*")):
                name = path.relative_to(folder)
                if ".bzr" not in name.parts and path.is_file():
                    found[str(name)] = path.read_bytes()
            if not place.endswith("light"):
                found[place] = repr(_local(folder / place)).encode()
        return found


def _local(path: Path) -> Tip | None:
    with in_process():
        try:
            branch = Branch.open(str(path))
        except NotBranchError:
            return None
        with branch.lock_read():
            revno, tip = branch.last_revision_info()
            return Tip(revno, tip, dict(sorted(branch.tags.get_tag_dict().items())))


class LocalWorld(World):
    """They are in a shared repository on this machine."""

    def __init__(self, folder: Path, served: Served) -> None:
        folder.mkdir()
        super().__init__(folder, served, f"{folder}/shared/")

    def tip(self, name: str) -> Tip | None:
        """As of a world."""
        return _local(Path(self.at) / name)


class RemoteWorld(World):
    """They are on a server."""

    def __init__(self, folder: Path, served: Served) -> None:
        folder.mkdir()
        super().__init__(folder, served, served.url(f"{folder.name}/"))

    def tip(self, name: str) -> Tip | None:
        """As of a world."""
        found = self.users.served_tip(name)
        return None if found is None else Tip(*found, dict(sorted(self.users.served_entries("tags", name).items())))


class Model:
    """Both worlds, and what is done in them."""

    def __init__(self, folder: Path, served: Served, seed: int) -> None:
        self.rng = random.Random(seed)
        self.local = LocalWorld(folder / f"local-{seed}", served)
        self.remote = RemoteWorld(folder / f"remote-{seed}", served)
        self.worlds = (self.local, self.remote)
        self.step = 0
        self.history: list[str] = []
        self.different: list[str] = []
        self.do("a", "init-shared-repository", "--no-trees", "@", compared=False)
        for user in "ab":
            self.do(user, "init", "-q", "own")
        self.commit("a/own")
        self.do("a/own", "push", "-q", "@trunk")
        self.do("b", "pull", "-q", "-d", "own", "@trunk")
        for user in "ab":
            self.do(user, "checkout", "-q", "--lightweight", "@trunk", "light")
            self.do(user, "checkout", "-q", "@trunk", "bound")

    # -- what is there

    @property
    def branches(self) -> list[str]:
        """The shared branches."""
        return [name for name in BRANCHES if self.local.tip(name) is not None]

    def branch(self) -> str:
        """The location of a shared branch."""
        return "@" + self.rng.choice(self.branches or BRANCHES[:1])

    def place(self, *trees: str) -> str:
        """Where one of the users has one of these trees."""
        return self.rng.choice("ab") + "/" + self.rng.choice(trees or ("own", "light", "bound"))

    def revision(self, upto: int = 8) -> str:
        """A revision, which may not be there."""
        rng = self.rng
        return rng.choice(
            [str(rng.randint(1, upto)), str(-rng.randint(1, 4)), f"tag:{rng.choice(TAGS)}", f"1.1.{rng.randint(1, 2)}"]
        )

    @property
    def time(self) -> str:
        """The option that makes a commit at the time of this step."""
        hours, seconds = divmod(self.step, 3600)
        return f"--commit-time=2024-01-01 {hours:02}:{seconds // 60:02}:{seconds % 60:02} +0000"

    # -- doing

    def do(self, where: str, *words: str, compared: bool = True) -> int:
        """Run a command in both worlds; its status in the local one."""
        self.step += 1
        said = [world.run(self.step, where, words) for world in self.worlds]
        self.history.append(f"{self.step} {where}: brz {' '.join(words)} = {said[0][0]}")
        if compared and said[0] != said[1] and said[0][0] != CRASHED:
            self.tell("says", said)
        return said[0][0]

    def look(self) -> bool:
        """Compare what is there; whether that is the same."""
        tips = [{name: world.tip(name) for name in BRANCHES} for world in self.worlds]
        if tips[0] != tips[1]:
            self.tell("branches", tips)
        files = [world.files() for world in self.worlds]
        if files[0] != files[1]:
            names = [name for name in {**files[0], **files[1]} if files[0].get(name) != files[1].get(name)]
            self.tell("files", [{name: each.get(name) for name in names} for each in files])
        return tips[0] == tips[1] and files[0] == files[1]

    def tell(self, what: str, said: Sequence[object]) -> None:
        """Keep a difference."""
        self.different.append(f"{self.history[-1]}\n  {what}, local : {said[0]}\n  {what}, remote: {said[1]}")

    # -- steps

    def write(self, where: str) -> None:
        """Change a file of a tree."""
        name, line = self.rng.choice(FILES), f"line {self.step}\n"
        for world in self.worlds:
            path = world.users.path(where) / name
            path.parent.mkdir(exist_ok=True)
            old = path.read_text() if path.exists() else ""
            path.write_text(line + old if self.step % 2 else old + line)

    def commit(self, where: str) -> None:
        """Change a file and commit it."""
        self.write(where)
        self.do(where, "add", "-q", ".")
        self.do(where, "commit", self.time, "-m", f"step {self.step}")

    def push(self) -> None:
        """Push somebody's branch."""
        options = [word for word in ("--overwrite", "--remember", "-q") if self.rng.random() < 0.25]
        self.do(self.place("own", "own", "light", "bound"), "push", *options, "@" + self.rng.choice(BRANCHES))

    def pull(self) -> None:
        """Pull a shared branch."""
        options = [word for word in ("--overwrite", "--remember", "-v") if self.rng.random() < 0.25]
        # Breezy waits for a lock of its own where a bound branch is overwritten.
        trees = ("own", "light") if "--overwrite" in options else ("own", "own", "light", "bound")
        self.do(self.place(*trees), "pull", *options, self.branch())

    def merge(self) -> None:
        """Merge a shared branch and commit that, or leave it."""
        where = self.place()
        status = self.do(where, "merge", "-q", self.branch())
        if status == 0 and self.rng.random() < 0.8:
            self.do(where, "commit", self.time, "-m", f"merge {self.step}")
        else:
            self.do(where, "revert", "-q", "--no-backup")

    def tag(self) -> None:
        """Set, move or delete a tag, here or there."""
        where = self.branch() if self.rng.random() < 0.6 else "."
        options = self.rng.choice([[], ["--force"], ["--delete"], ["-r", self.revision(), "--force"]])
        self.do(self.place(), "tag", "-d", where, *options, self.rng.choice(TAGS))

    def uncommit(self) -> None:
        """Take revisions off a branch."""
        options = [word for word in ("--keep-tags", "--local") if self.rng.random() < 0.15]
        if self.rng.random() < 0.4:
            options += ["-r", f"-{self.rng.randint(2, 3)}"]
        where = self.branch()
        tip = self.local.tip(where[1:])
        if tip is not None and tip.revno > 3:  # A branch on a server has a revision.
            self.do(self.place(), "uncommit", "--force", *options, where)

    def switch(self) -> None:
        """Let a checkout be of another branch."""
        self.do(self.place("light", "bound"), "switch", *self.rng.choice([[], ["--force"]]), self.branch())

    def update(self) -> None:
        """Bring a checkout up to date."""
        self.do(self.place("light", "bound", "own"), "update", *self.rng.choice([[], ["-q"], ["-r", self.revision()]]))

    def option(self) -> None:
        """Set or delete an option."""
        name = self.rng.choice(["nick", "append_revisions_only", "own_option"])
        value = self.rng.choice(["true", "false", "x y"]) if name != "append_revisions_only" else "false"
        words = ["--remove", name] if self.rng.random() < 0.3 else [f"{name}={value}"]
        self.do(self.place(), "config", "-d", self.branch(), "--scope=branch", *words)

    def delete(self) -> None:
        """Delete a shared branch, which no checkout may be of."""
        self.do(self.place("own"), "remove-branch", "--force", "@" + self.rng.choice(BRANCHES[1:]))

    def copy(self) -> None:
        """Make a shared branch of another."""
        name = "@" + self.rng.choice(BRANCHES[1:])
        options = self.rng.choice([[], [], ["-r", self.revision()]])
        self.do(self.place("own"), "branch", *options, self.branch(), name)

    def remake(self) -> None:
        """Make somebody's tree again, of a shared branch."""
        where = self.place()
        for world in self.worlds:
            shutil.rmtree(world.users.path(where), ignore_errors=True)
        user, tree = where.split("/")
        words = {"own": ["branch"], "light": ["checkout", "--lightweight"], "bound": ["checkout"]}[tree]
        if self.do(user, *words, self.branch(), tree):
            self.do(user, *words, "@trunk", tree)

    def read(self) -> None:
        """A command that changes nothing."""
        rng, where = self.rng, self.place()
        at = self.branch() if rng.random() < 0.7 else "."
        file = rng.choice(FILES)
        inside = file if at == "." else f"{at}/{file}"
        one, other = self.revision(), self.revision()
        words = rng.choice(
            [
                ["revno", at],
                ["revno", "-r", one, at],
                ["revision-info", "-d", at, one],
                ["tags", "-d", at, *rng.choice([[], ["--sort=time"], ["--show-ids"], ["-r", f"{one}..{other}"]])],
                ["log", *rng.choice([[], ["--line"], ["-n0"], ["--forward"], ["-v"], ["-p", "-l2"], ["--short"]]), at],
                ["log", "-r", f"{one}..{other}", *rng.choice([[], ["-n0"], ["--line"]]), at],
                ["log", "-l", str(rng.randint(1, 4)), "--line", inside],
                ["log", "--line", f"--match-message=step {rng.randint(1, 5)}", at],
                ["cat", "-r", one, inside],
                ["cat", inside],
                ["annotate", "--all", inside],
                ["ls", "-R", *rng.choice([[], ["-r", one]]), at] if at != "." else ["ls", "-R", "-V"],
                ["missing", "--line", *rng.choice([[], ["--mine-only"], ["--theirs-only"], ["-n0"]]), self.branch()],
                ["diff", "--old", at, "--new", "."] if at != "." else ["diff", "-r", one],
                ["diff", "-r", f"{one}..{other}", at],
                ["diff", "--old", at, "--new", self.branch()] if at != "." else ["status"],
                ["status", "-S"],
                ["info", "."],
                ["version-info", at],
                ["config", "-d", at, "--scope=branch"],
                ["config", "-d", at, "own_option"],
                ["find-merge-base", at, self.branch()],
                ["ancestry", at],
                ["nick", "-d", at],
                ["testament", "-r", one, at],
                ["testament", at],
                ["cat-revision", "-d", at, "-r", one],
                ["inventory", "-r", one],
                ["merge", "--preview", self.branch()],
                ["pack", at],
                ["export", "--format=tar", "-", at] if at != "." else ["shelve", "--list"],
                ["root"],
            ]
        )
        self.do(where, *words)

    def change(self) -> bool:
        """A random step; whether both worlds are the same after it."""
        steps = {
            self.commit_somewhere: 6,
            self.push: 6,
            self.pull: 5,
            self.merge: 3,
            self.tag: 4,
            self.uncommit: 2,
            self.switch: 2,
            self.update: 3,
            self.option: 2,
            self.delete: 1,
            self.copy: 2,
            self.remake: 1,
        }
        self.rng.choices(list(steps), list(steps.values()))[0]()
        return self.look()

    def commit_somewhere(self) -> None:
        """Commit in somebody's tree."""
        self.commit(self.place())


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """A server that lets everyone write."""
    served = Served(folder, "--anonymous", "write")
    try:
        yield served
    finally:
        served.close()


def main(seeds: int, steps: int, readings: int) -> int:
    """Run so many seeds, each with its part of the readings among its steps; how many commands differed."""
    count = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as name, serving(Path(name)) as served:
            model = Model(Path(name), served, seed)
            read = 0
            for step in range(steps):
                if not model.change():
                    break
                while read < readings * (step + 1) // (steps * seeds):
                    model.read()
                    read += 1
            count += len(model.different)
            print(f"seed {seed}: {step + 1} steps, {read} readings, {len(model.different)} differ", flush=True)
            for each in model.different:
                print(each, flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
