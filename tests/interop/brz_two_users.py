"""Two users with separate memories share branches on a server: random commands, compared with the same commands on
local branches.

`python tests/interop/brz_two_users.py SEEDS STEPS READINGS` prints the differences of so many steps and readings in
all. A command has the same effects in both worlds: its status, its streams, the files and tips of both users, the
shared branches and tags. Ids and times come from the step in which they were made, so they are equal too.
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

from breezy import lockdir, osutils

lockdir._DEFAULT_TIMEOUT_SECONDS = 0
osutils.rand_chars = lambda count: os.environ["BRZ_STEP"]
osutils.compact_date = lambda when: "20240101000000"
"""
"""A plugin that makes ids from the step, and never waits for a lock: a lock is only ever held by the same command."""
BRANCHES = ("trunk", "side", "next")
PLACES = tuple(f"{user}/{tree}" for user in "ab" for tree in ("own", "light", "bound"))
"""The trees of both users: a branch with a tree, a lightweight checkout and a bound branch each."""
FILES = ("one", "two", "folder/three")
TAGS = ("v1", "v2", "v3")

PLAIN = (
    (r"(?:file://)?@(\w+)/?(?![\w/.])", r"@\1"),
    (r"@(\w+)/?\.bzr/branch/", r"@\1"),  # Where no branch is.
    (r"\d+-\d+-\d+ \d+:\d+:\d+ \+0000", "DATE"),  # Of a file in a tree.
    (r": location is a repository", ""),
    # A branch that is made where a local branch was removed gets a repository of its own.
    (r"Standalone branch (\(format: 2a\)\n.*\n)  branch root: @", r"Repository branch \1  repository branch: @"),
    (r"(?m)^ +shared repository: (?:HERE/shared|@)\n", ""),
    (r"\(format: hpss\)", "(format: 2a)"),
    (r"(?m)^(@\S+) +(?=\S+$)", r"\1 "),  # Columns as wide as a URL.
    (r"(?<=_location = )(?:\.\./)+shared/(\w+)/", r"@\1"),
    (r"Unable to connect to target of bound branch \S+ => @\w+: (Not a branch: )", r"\1"),
    (r"This transport does not update the working tree of: .*\n", ""),  # It is said of a folder.
    # As last seen, and then as it is.
    (r"(?:(Created|Updated) (tag \w+)\.\n|(Tag \w+) already exists for that revision\.\n)+", r"TAG"),
    (r"Working tree .* has uncommitted changes.*\n", ""),  # Before or after a branch is found to be gone.
    (r"(?s)^Committing to: .*(?=brz: ERROR: (Bound branch|Working tree is out of date))", ""),  # The server refuses it.
    (r"(?<=InventoryRevisionTree instance at )[0-9a-f]+", "ADDRESS"),
)
"""Patterns of output that necessarily differs between the worlds, and their replacements."""
CRASHED = 4
"""The status of a command that hits a bug of Breezy's: its output is not compared."""
OWN_LOCK = "Could not acquire lock"
"""Breezy's message for a lock that the same command holds, as in a pull of tags into a bound branch."""


class Tip(NamedTuple):
    """The content of a branch."""

    revno: int
    id: bytes
    tags: Mapping[str, bytes]


class World:
    """The users, and the place of the shared branches, which commands call `@`: on a server, or on this machine."""

    def __init__(self, folder: Path, served: Served, *, is_remote: bool) -> None:
        folder.mkdir()
        self.users = Users(folder, served, folder.name)
        self.at = served.url(f"{folder.name}/") if is_remote else f"{folder}/shared/"
        self._is_remote = is_remote
        self._shown = self.at.replace(self.users.url(""), "URL").replace(str(folder), "HERE")
        (folder / ".fixed").mkdir()
        (folder / ".fixed" / "__init__.py").write_text(FIXED)
        for user in "ab":
            (folder / user).mkdir()

    def run(self, step: int, where: str, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command, and return its status and streams."""
        located = [re.sub(r"(?<!\w)@", self.at, word) for word in words]
        fixed = self.users.folder / ".fixed"
        done = self.users.run(where, *located, plugin=f"hpss@{SHIM}:fixed@{fixed}", BRZ_STEP=f"{step:016}")
        out = self._plain(done.out)
        # Breezy takes revisions beside each other in the order of a set; a tag out of the branch's reach has no time.
        if words[0] == "ancestry" or (words[0] == "tags" and " ?\n" in out):
            out = "".join(sorted(out.splitlines(keepends=True)))
        return done.status, out, self._plain(done.err)

    def _plain(self, said: str) -> str:
        said = said.replace(self._shown, "@").replace("HpssBranch(", "BzrBranch7(")
        for pattern, plain in PLAIN:
            said = re.sub(pattern, plain, said)
        return said

    def tip(self, name: str) -> Tip | None:
        """Return the content of a shared branch, as the server stores it; None if there is none."""
        if not self._is_remote:
            return _local(Path(self.at) / name)
        found = self.users.served_tip(name)
        return None if found is None else Tip(*found, dict(sorted(self.users.served_entries("tags", name).items())))

    def files(self) -> dict[str, bytes]:
        """Return the users' files, and the tips of their branches."""
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


class Model:
    """Both worlds, and the random steps in them."""

    def __init__(self, folder: Path, served: Served, seed: int) -> None:
        self.rng = random.Random(seed)
        self.local = World(folder / f"local-{seed}", served, is_remote=False)
        self.remote = World(folder / f"remote-{seed}", served, is_remote=True)
        self.worlds = (self.local, self.remote)
        self.step = 0
        self.history: list[str] = []
        self.different: list[str] = []
        self.crashes = 0
        self.do("a", "init-shared-repository", "--no-trees", "@", compared=False)
        self.do("a", "init", "-q", "own")
        for name in FILES:
            self.write("a/own", name)
            self.commit("a/own")
        self.do("a", "branch", "-q", "own", "topic")
        self.write("a/topic", FILES[0])
        self.commit("a/topic")
        self.write("a/own", FILES[1])
        self.commit("a/own")
        self.do("a/own", "merge", "-q", "../topic")
        self.do("a/own", "commit", self.time, "-m", "merge topic")
        self.do("a/own", "push", "-q", "@trunk")
        self.do("b", "branch", "-q", "@trunk", "own")
        for user in "ab":
            self.do(user, "checkout", "-q", "--lightweight", "@trunk", "light")
            self.do(user, "checkout", "-q", "@trunk", "bound")

    # -- what is there

    @property
    def branches(self) -> list[str]:
        """The names of the existing shared branches."""
        return [name for name in BRANCHES if self.local.tip(name) is not None]

    def branch(self) -> str:
        """Return the location of a shared branch."""
        return "@" + self.rng.choice(self.branches or BRANCHES[:1])

    def place(self, *trees: str) -> str:
        """Return the path of a tree of one of the users, of one of these kinds."""
        return self.rng.choice("ab") + "/" + self.rng.choice(trees or ("own", "light", "bound"))

    def some(self, *options: str) -> list[str]:
        """Return few of these options."""
        return [option for option in options if self.rng.random() < 0.2]

    def specs(self, where: str, at: str) -> list[str]:
        """Return revision specs of the branch at location `at`, seen from the folder `where`."""
        with in_process():
            path = at.replace("@", self.local.at) if at.startswith("@") else str(self.local.users.path(where) / at)
            try:
                branch = Branch.open(path)
            except NotBranchError:
                return []
            with branch.lock_read():
                numbers = branch.get_revision_id_to_revno_map()
                tags = branch.tags.get_tag_dict()
        found = [".".join(map(str, number)) for number in sorted(numbers.values())]
        merged = [number for number in found if "." in number]
        ids = [f"revid:{revision.decode()}" for revision in sorted(numbers)]
        return [*found, *merged, *(f"tag:{name}" for name in sorted(tags)), *ids]

    def revision(self, where: str, at: str) -> str:
        """Return a revision spec of a branch; at times of a missing revision."""
        rng, found = self.rng, self.specs(where, at)
        if not found or rng.random() < 0.1:
            return rng.choice(["99", "-99", "1.7.1", "tag:none", "revid:none", *(f"tag:{name}" for name in TAGS)])
        above = [each for each in found if each[0].isdigit() and each != "1"]  # A branch on a server has a revision.
        found += [f"before:{each}" for each in above[:3]]
        found += ["last:1", "last:2", "-1", "-2", "-3", f"ancestor:{self.branch()}"]
        return rng.choice([*found, f"date:2024-01-01,00:{self.step // 120:02}:00"])

    def range(self, where: str, at: str) -> str:
        """Return a range of revisions, closed or open."""
        rng, found = self.rng, [each for each in self.specs(where, at) if each.isdigit()]
        if len(found) < 2 or rng.random() < 0.4:
            return f"{self.revision(where, at)}..{rng.choice([self.revision(where, at), ''])}"
        return "..".join(sorted(rng.sample(found, 2), key=int))

    @property
    def time(self) -> str:
        """Return the option that makes a commit at the time of this step."""
        hours, seconds = divmod(self.step, 3600)
        return f"--commit-time=2024-01-01 {hours:02}:{seconds // 60:02}:{seconds % 60:02} +0000"

    # -- doing

    def do(self, where: str, *words: str, compared: bool = True) -> int:
        """Run a command in both worlds, and return its status in the local one."""
        self.step += 1
        said = [world.run(self.step, where, words) for world in self.worlds]
        self.history.append(f"{self.step} {where}: brz {' '.join(words)} = {said[0][0]}")
        if said[0][0] == CRASHED or OWN_LOCK in said[0][2]:
            self.crashes += 1
            if where in PLACES:
                self.remake(where)
        elif compared and said[0] != said[1]:
            self.tell("says", said)
        return said[0][0]

    def look(self) -> bool:
        """Compare branches and files of both worlds, and tell whether they are equal."""
        tips = [{name: world.tip(name) for name in BRANCHES} for world in self.worlds]
        if tips[0] != tips[1]:
            self.tell("branches", tips)
        files = [world.files() for world in self.worlds]
        if files[0] != files[1]:
            names = [name for name in {**files[0], **files[1]} if files[0].get(name) != files[1].get(name)]
            self.tell("files", [{name: each.get(name) for name in names} for each in files])
        return tips[0] == tips[1] and files[0] == files[1]

    def tell(self, what: str, said: Sequence[object]) -> None:
        """Keep a difference for the report."""
        self.different.append(f"{self.history[-1]}\n  {what}, local : {said[0]}\n  {what}, remote: {said[1]}")

    # -- steps

    def write(self, where: str, name: str | None = None) -> None:
        """Change a file of a tree."""
        name, line = name or self.rng.choice(FILES), f"line {self.step}\n"
        for world in self.worlds:
            path = world.users.path(where) / name
            path.parent.mkdir(exist_ok=True)
            old = path.read_text() if path.exists() else ""
            path.write_text(line + old if self.step % 2 else old + line)
        self.do(where, "add", "-q", ".")

    def commit(self, where: str, *options: str) -> None:
        """Commit the changes of a tree."""
        self.do(where, "commit", self.time, "-m", f"step {self.step}", *options)

    def commit_somewhere(self) -> None:
        """Change a tree, which may be out of date, and commit that."""
        where = self.place()
        is_local = where.endswith("bound") and self.rng.random() < 0.15
        if not where.endswith("own") and not is_local and self.rng.random() < 0.8:
            self.settle(where, self.do(where, "update", *self.some("-q")))
        if self.rng.random() < 0.15:
            name = self.rng.choice(FILES)
            self.do(where, *self.rng.choice([["remove", "-q", name], ["mv", "-q", name, f"moved-{self.step}"]]))
        self.write(where)
        self.commit(where, *(["--local"] if is_local else []))

    def settle(self, where: str, status: int) -> None:
        """Resolve most conflicts of a merge."""
        if status == 1 and self.rng.random() < 0.8:
            self.do(where, "resolve", "-q", "--all", *self.rng.choice([[], [], ["--take-this"], ["--take-other"]]))

    def push(self) -> None:
        """Push a user's branch, sometimes after a merge of the target."""
        where, name = self.place("own", "own", "light", "bound"), "@" + self.rng.choice(BRANCHES)
        if self.local.tip(name[1:]) is not None and self.rng.random() < 0.3:
            self.merge_into(where, name)
        # Breezy does not heed `--no-remember` where the branch is there.
        options = self.some("--overwrite", "--overwrite-tags", "--remember", "-q", "-v")
        if self.rng.random() < 0.15:
            options += ["-r", self.revision(where, ".")]
        self.push_to(where, name, *options)

    def push_to(self, where: str, name: str, *options: str) -> None:
        """Push a branch to a location."""
        is_new = self.local.tip(name[1:]) is None
        self.do(where, "push", *options, name)
        if is_new:  # A push does not record the parent on a server.
            self.do(where, "config", "-d", name, "--scope=branch", "--remove", "parent_location", compared=False)

    def pull(self) -> None:
        """Pull a shared branch."""
        options = self.some("--overwrite", "--overwrite-tags", "--remember", "--no-remember", "-v", "-q")
        # Breezy waits for a lock of its own where a bound branch is overwritten.
        overwrites = any("overwrite" in option for option in options)
        where, at = self.place("own", "light" if overwrites else "bound", "light"), self.branch()
        if self.rng.random() < 0.15:
            options += ["-r", self.revision(where, at)]
        if where.endswith("bound") and self.rng.random() < 0.2:
            options += ["--local"]
        self.settle(where, self.do(where, "pull", *options, at))

    def pull_remembered(self) -> None:
        """Pull, push or merge with a remembered location."""
        where = self.place("own", "light")
        words = self.rng.choice([["pull"], ["push"], ["missing", "--line"], ["merge", "--preview"]])
        self.do(where, *words)

    def merge(self) -> None:
        """Merge a random shared branch, and commit that or leave it."""
        self.merge_into(self.place(), self.branch())

    def merge_into(self, where: str, at: str) -> None:
        """Merge this shared branch, and commit that or leave it."""
        options = ["-r", self.revision(where, at)] if self.rng.random() < 0.2 else []
        if not where.endswith("own"):
            self.settle(where, self.do(where, "update", "-q"))
        status = self.do(where, "merge", *self.some("-q", "--force", "--reprocess"), *options, at)
        self.settle(where, status)
        if status in (0, 1) and self.rng.random() < 0.8:
            self.commit(where)
        else:
            self.do(where, "revert", "-q", "--no-backup")

    def tag(self) -> None:
        """Set, move or delete a tag, in a tree or a shared branch."""
        rng, where = self.rng, self.place()
        at = self.branch() if rng.random() < 0.6 else "."
        set_ones = [spec[4:] for spec in self.specs(where, at) if spec.startswith("tag:")]
        if set_ones and rng.random() < 0.3:
            self.do(where, "tag", "-d", at, "--delete", rng.choice(set_ones))
        else:
            options = rng.choice([[], ["--force"], ["-r", self.revision(where, at), "--force"]])
            self.do(where, "tag", "-d", at, *options, rng.choice(TAGS))

    def uncommit(self) -> None:
        """Remove revisions from a branch."""
        options, where = self.some("--keep-tags", "-v"), self.place()
        if self.rng.random() < 0.4:
            options += ["-r", f"-{self.rng.randint(2, 3)}"]
        # Breezy waits for a lock of its own where a bound branch loses tags.
        at = self.branch() if where.endswith("bound") or self.rng.random() < 0.7 else "."
        if sum(spec.isdigit() for spec in self.specs(where, at)) > 3:  # A branch on a server has a revision.
            self.do(where, "revno", at)  # What has changed since it was last seen is not removed.
            self.do(where, "uncommit", "--force", *options, at)

    def switch(self) -> None:
        """Switch a checkout to another branch."""
        where = self.place("light", "bound")
        options = self.rng.choice([[], ["--force"]])
        new = "@" + self.rng.choice(BRANCHES)
        if self.local.tip(new[1:]) is None:
            options += ["-b"]
        status = self.do(where, "switch", *options, new)
        if "-b" in options:  # A branch on a server has no tree, which a push would update.
            self.local.run(self.step, where, ("remove-tree", "-q", "--force", new))
        self.settle(where, status)

    def update(self) -> None:
        """Update a checkout."""
        where = self.place("light", "bound", "own")
        options = self.rng.choice([[], ["-q"], ["-r", self.revision(where, ".")]])
        self.settle(where, self.do(where, "update", *options))

    def revert(self) -> None:
        """Revert a tree."""
        where = self.place()
        options = ["-r", self.revision(where, ".")] if self.rng.random() < 0.4 else []
        self.do(where, "revert", "--no-backup", *options, *self.rng.choice([[], [self.rng.choice(FILES)]]))

    def bind(self) -> None:
        """Unbind a bound branch for one commit."""
        where = self.place("bound")
        self.do(where, "unbind")
        self.write(where)
        self.commit(where)
        self.do(where, "bind", *self.rng.choice([[], [self.branch()]]))

    def option(self) -> None:
        """Set or delete an option."""
        name = self.rng.choice(["nick", "append_revisions_only", "own_option", "own_option"])
        value = self.rng.choice(["true", "false", "x y"]) if name != "append_revisions_only" else "false"
        words = ["--remove", name] if self.rng.random() < 0.3 else [f"{name}={value}"]
        self.do(self.place(), "config", "-d", self.branch(), "--scope=branch", *words)

    def absent(self) -> str:
        """Return the location of a missing shared branch, if there is one."""
        return "@" + self.rng.choice([name for name in BRANCHES if name not in self.branches] or BRANCHES[1:])

    def delete(self) -> None:
        """Delete a shared branch, and push it again if it is needed."""
        name = self.rng.choice([BRANCHES[1], *self.branches])
        self.do(self.place("own"), "remove-branch", "--force", "@" + name)
        # What needs nothing of the server (`add`, `revert`) works in a checkout of a branch that is gone.
        lights = [self.local.users.path(f"{user}/light/.bzr/branch/location").read_text() for user in "ab"]
        if name == BRANCHES[0] or any(light.rstrip("/").endswith(f"/{name}") for light in lights):
            self.push_to(self.place("own"), "@" + name)

    def copy(self) -> None:
        """Copy a shared branch to a new one."""
        where, at = self.place("own"), self.branch()
        options = self.rng.choice([[], [], ["-r", self.revision(where, at)]])
        self.do(where, "branch", *options, at, self.absent())

    def remake(self, where: str = "") -> None:
        """Recreate a user's tree from a shared branch."""
        where = where or self.place()
        for world in self.worlds:
            shutil.rmtree(world.users.path(where), ignore_errors=True)
        user, tree = where.split("/")
        words = {"own": ["branch"], "light": ["checkout", "--lightweight"], "bound": ["checkout"]}[tree]
        at = self.branch()
        if self.rng.random() < 0.3:
            words += ["-r", self.revision(user, at)]
        if self.do(user, *words, at, tree):
            self.do(user, *words[:2] if tree == "light" else words[:1], "@trunk", tree)

    def read(self) -> None:
        """Run a command that changes nothing."""
        rng, where = self.rng, self.place()
        at = self.branch() if rng.random() < 0.7 else "."
        file = rng.choice(FILES)
        inside = file if at == "." else f"{at}/{file}"
        one, both = self.revision(where, at), self.range(where, at)
        here, other = self.revision(where, "."), self.branch()
        log = ["--line", "-n0", "--forward", "-v", "-p", "-l2", "--short", "--show-ids", "--long", "--omit-merges"]
        missing = ["--mine-only", "--theirs-only", "-n0", "--reverse", "-v", "--show-ids"]
        words = rng.choice(
            [
                ["revno", at],
                ["revno", "-r", one, at],
                ["revision-info", "-d", at, *rng.choice([[], [one]])],
                ["tags", "-d", at, *rng.choice([[], ["--sort=time"], ["--show-ids"], ["-r", both]])],
                ["log", *rng.sample(log, rng.randint(0, 2)), at],
                ["log", "-r", both, *rng.choice([[], [rng.choice(log)]]), at],
                ["log", "-r", one, *rng.choice([[], [rng.choice(log)]]), at],
                ["log", "-c", one, at],
                ["log", "-l", str(rng.randint(1, 4)), "--line", inside],
                ["log", *rng.choice([[], ["-v"], ["-n0"]]), inside],
                ["log", "--line", f"--match-message=step {rng.randint(1, 5)}", at],
                ["cat", "-r", one, inside],
                ["cat", inside],
                ["annotate", "--all", *rng.choice([[], ["-r", one], ["--show-ids"]]), inside],
                ["ls", "-R", *rng.choice([[], ["-r", one], ["--show-ids"]]), at] if at != "." else ["ls", "-R", "-V"],
                ["missing", *rng.sample(missing, rng.randint(0, 2)), *rng.choice([[], ["--line"]]), other],
                ["missing", "-r", both, "--line", other],
                ["diff", "--old", at, "--new", "."] if at != "." else ["diff", "-r", one],
                ["diff", "-r", both, at],
                ["diff", "-r", both, inside],
                ["diff", "-c", one, at],
                ["diff", "--old", at, "--new", other] if at != "." else ["status"],
                ["status", "-S"],
                ["status", "-r", here],
                ["status", "--show-ids"],
                ["info", "."],
                ["info", at],
                ["version-info", *rng.choice([[], ["--include-history"], ["-r", one]]), at],
                ["config", "-d", at, "--scope=branch"],
                ["config", "-d", at, rng.choice(["own_option", "append_revisions_only"])],
                ["find-merge-base", at, other],
                ["ancestry", at],
                ["nick", "-d", at],
                ["testament", "-r", one, at],
                ["testament", *rng.choice([[], ["--long"], ["--strict"]]), at],
                ["cat-revision", "-d", at, "-r", rng.choice(["1", "2", "-1"])],
                ["inventory", "-r", here],
                ["merge", "--preview", *rng.choice([[], ["-r", one]]), other],
                ["uncommit", "--dry-run", "--force", at],
                ["branches", "-R", "@"],
                ["pack", at],
                ["export", "--format=tar", *rng.choice([[], ["-r", one]]), "-", at] if at != "." else ["conflicts"],
                ["deleted"],
                ["unknowns"],
                ["root"],
            ]
        )
        self.do(where, *words)

    def change(self) -> bool:
        """Do a random step, and tell whether both worlds are equal after it."""
        steps = {
            self.commit_somewhere: 6,
            self.push: 7,
            self.pull: 6,
            self.pull_remembered: 2,
            self.merge: 3,
            self.tag: 4,
            self.uncommit: 3,
            self.switch: 3,
            self.update: 3,
            self.revert: 1,
            self.bind: 1,
            self.option: 2,
            self.delete: 1,
            self.copy: 2,
            self.remake: 1,
        }
        self.rng.choices(list(steps), list(steps.values()))[0]()
        return self.look()


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Run a server that lets everyone write."""
    served = Served(folder, "--anonymous", "write")
    try:
        yield served
    finally:
        served.close()


def main(seeds: int, steps: int, readings: int) -> int:
    """Run so many seeds, each with its part of steps and readings, and return the number of commands that differed."""
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
