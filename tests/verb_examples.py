"""An example of each verb, which changes something if the verb may; and the site on which the examples are run."""

from __future__ import annotations

from collections.abc import Callable

from builders import MAIN
from bzr_builders import TRUNK, BzrHistory
from dialogs import CREATE, Served

from smartserver.records.browse import LogSelector, encode_selector
from smartserver.records.model import Tip
from smartserver.verbs.branch_add_heads import AddHeadsRequest, NewHead
from smartserver.verbs.branch_create import BranchCreateRequest
from smartserver.verbs.branch_delete import BranchDeleteRequest
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest
from smartserver.verbs.declare import Arguments, Permission
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest
from smartserver.verbs.repository_configure import ConfigureRequest
from smartserver.verbs.repository_delete import DeleteRequest
from smartserver.verbs.repository_insert_pack import InsertPackRequest
from smartserver.verbs.repository_list import ListRequest
from smartserver.verbs.repository_mend import MendRequest
from smartserver.verbs.repository_open import OpenRequest
from smartserver.verbs.repository_pack import PackRequest
from smartserver.verbs.repository_pull import PullRequest
from smartserver.verbs.repository_read import ReadRequest
from smartserver.verbs.repository_stats import StatsRequest
from smartserver.verbs.repository_verify import VerifyRequest
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_info import InfoRequest
from smartserver.verbs.server_ping import PingRequest
from smartserver.verbs.vfs import (
    BringRequest,
    LookRequest,
    PathRequest,
    RangeField,
    ReadvRequest,
    RenameRequest,
    WithdrawRequest,
)

R, W, C, F, D = Permission.READ, Permission.WRITE, Permission.CREATE, Permission.FORCE, Permission.DELETE
V, A = Permission.VFS, Permission.ADMIN
TOPIC = b"refs/heads/topic"


class Example:
    """The arguments of a verb, made from the line of the history, and the permissions that its user needs."""

    def __init__(
        self, arguments: Callable[[list[bytes]], Arguments], *needs: Permission, path: str = "project"
    ) -> None:
        self.arguments = arguments
        self.needs = frozenset(needs)
        self.path = path


EXAMPLES = {
    "Branch.add_heads": Example(lambda line: AddHeadsRequest(b"refs/heads/new", [NewHead(line[1])]), R, W, C),
    "Branch.create": Example(lambda line: BranchCreateRequest(b"refs/heads/new", line[1]), R, W, C),
    "Branch.delete": Example(lambda line: BranchDeleteRequest(TOPIC), R, W, D),
    "Branch.set_last_revision": Example(lambda line: SetLastRevisionRequest(MAIN, line[0], Rule.FORCE), R, W, F),
    "Map.update": Example(
        lambda line: MapUpdateRequest("tags", MapKind.IDS, [EntryChange(b"v1", line[0])], MAIN), R, W
    ),
    "Repository.configure": Example(lambda line: ConfigureRequest({"description": b"x"}), R, W, A),
    "Repository.create": Example(lambda line: CREATE, R, W, C, path="another"),
    "Repository.delete": Example(lambda line: DeleteRequest(), R, W, D),
    "Repository.insert_pack": Example(lambda line: InsertPackRequest(), R, W),
    "Repository.list": Example(lambda line: ListRequest(refs=True), R),
    "Repository.mend": Example(lambda line: MendRequest(), R, W, A),
    "Repository.open": Example(lambda line: OpenRequest(), R, path="project/below"),
    "Repository.pack": Example(lambda line: PackRequest(), R, W),
    "Repository.pull": Example(lambda line: PullRequest(), R),
    "Repository.read": Example(lambda line: ReadRequest(encode_selector(LogSelector()), refs=[TRUNK]), R, path="trees"),
    "Repository.stats": Example(lambda line: StatsRequest(), R),
    "Repository.verify": Example(lambda line: VerifyRequest(), R),
    "Server.info": Example(lambda line: InfoRequest(), R),
    "Server.ping": Example(lambda line: PingRequest(), R),
    "append": Example(lambda line: BringRequest("file", b"more"), R, W, V, path="files"),
    "delete": Example(lambda line: PathRequest("file"), R, W, V, path="files"),
    "get": Example(lambda line: LookRequest("file"), R, V, path="files"),
    "get_published": Example(lambda line: LookRequest("file"), R, V, path="files"),
    "has": Example(lambda line: PathRequest("file"), R, V, path="files"),
    "list_dir": Example(lambda line: LookRequest(""), R, V, path="files"),
    "mkdir": Example(lambda line: PathRequest("new"), R, W, V, path="files"),
    "publish": Example(lambda line: RenameRequest("file", "new"), R, W, V, path="files"),
    "put": Example(lambda line: BringRequest("new", b"content"), R, W, V, path="files"),
    "readv": Example(lambda line: ReadvRequest("file", [RangeField(2, 2)]), R, V, path="files"),
    "rename": Example(lambda line: RenameRequest("file", "new"), R, W, V, path="files"),
    "rmdir": Example(lambda line: PathRequest("empty"), R, W, V, path="files"),
    "stat": Example(lambda line: LookRequest("file"), R, V, path="files"),
    "sync_dir": Example(lambda line: PathRequest(""), R, W, V, path="files"),
    "withdraw": Example(lambda line: WithdrawRequest("file", "aside"), R, W, V, path="files"),
}


def served_examples() -> tuple[Served, list[bytes]]:
    """Make the site of the examples, and the line of its history; the last revision comes with the body."""
    served = Served()
    line = served.history.line(4)
    served.push(line[:3], {MAIN: line[2], TOPIC: line[1]})
    history = BzrHistory()
    line_of_trees = history.line(1)
    history.push(served.repository("trees"), line_of_trees, {TRUNK: Tip(line_of_trees[0])})
    served.site.allows_vfs = True
    served.transport.make_directory("files")
    served.transport.make_directory("files/empty")
    served.transport.put("files/file", [b"content"])
    return served, line
