"""What the hex blocks of the disk specification say of format, root, tables and log, as objects."""

from __future__ import annotations

from smartserver.records.model import Kind, RefValue, Tip
from smartserver.store.document import PackEntry, Root, encode_root, encode_value
from smartserver.store.format import Discipline, Format
from smartserver.store.swap_log import LogChange, LogEntry, log_file
from smartserver.store.tables import Table, encode_table

OLD: RefValue = (Tip(bytes(range(0x40, 0x54))),)
NEW: RefValue = (Tip(bytes(range(0x20, 0x34))),)
HEADS: RefValue = (Tip(b"\xaa\xaa", b"7"), Tip(b"\xbb\xbb", b"", True))

ENTRY = LogEntry(
    2,
    1_700_000_000_000,
    "joe",
    bytes(range(16)),
    b"ok",
    [LogChange("refs", b"refs/heads/main", encode_value(OLD), encode_value(NEW))],
)
ROOT = Root(
    incarnation=bytes(range(0xA0, 0xB0)),
    version=2,
    vcs="git sha1",
    kinds=(Kind("object", "git-sha1", True),),
    packs=(PackEntry(b"\x11" * 16, 300, b"\x22" * 16, 200, b"\x33" * 16, 1, 3),),
    settings={"HEAD": b"refs/heads/main"},
    settings_version=1,
    tables={"dropped": Table("opaque"), "refs": Table("ids", {b"refs/heads/main": encode_value(NEW)})},
    log=(ENTRY,),
    log_from=1,
    log_mark=0xB0B1,
)

BLOCKS: dict[str, bytes] = {
    "a format file": Format(Discipline.FILE).line(),
    "the value of a ref with two heads": encode_value(HEADS),
    "a table file with two entries": encode_table([(b"a", b"1"), (b"bc", b"")]),
    "a log file with one entry": log_file([ENTRY], b"n" * 8)[1],
    "a root file": encode_root(ROOT),
}
