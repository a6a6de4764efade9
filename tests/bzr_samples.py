"""Two revisions as Breezy 3.3 wrote them: a file, a program, a link and a folder; then a change and a ghost merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from builders import bring
from bzr_builders import inventory_text
from bzr_maps import leaf

from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import Parent, Record, Tip
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, TEXT

BY_ID = b"sha1:9b20a1d1288e5985176c966ce51e8840906fb542"
ENTRIES = {
    b"lib-id": b"dir: lib-id\nroot-id\nlib\njoe@example.org-1",
    b"link-id": b"symlink: link-id\nroot-id\nlink\njoe@example.org-1\nlib/run",
    b"readme-id": b"file: readme-id\nroot-id\nREADME\njoe@example.org-1\n"
    b"46b6444596287e43e619610542bfb9d982232032\n8\nN",
    b"root-id": b"dir: root-id\n\n\njoe@example.org-1",
    b"run-id": b"file: run-id\nlib-id\nrun\njoe@example.org-1\nbd971bec88149956458a10fc9c5ecb3eb99dd452\n10\nY",
}
BY_NAME = b"sha1:ae657ccdc8c8d98dcf4399771c65a36fe0da37cb"
NAMES = {
    b"\0": b"root-id",
    b"lib-id\0run": b"run-id",
    b"root-id\0README": b"readme-id",
    b"root-id\0lib": b"lib-id",
    b"root-id\0link": b"link-id",
}

FIRST_PARENTS: tuple[Parent, ...] = ()
FIRST = (
    Record(
        REVISION,
        b"joe@example.org-1",
        b"",
        (
            b"ll6:formati10ee"
            b"l9:committer21:Joe <joe@example.org>e"
            b"l8:timezonei3600ee"
            b"l10:propertiesd11:branch-nick1:tee"
            b"l9:timestamp14:1000000000.000e"
            b"l11:revision-id17:joe@example.org-1e"
            b"l10:parent-idslee"
            b"l14:inventory-sha140:d497f55ffd60b83f65b035e251809cf1c8f288d1e"
            b"l7:message5:Firstee"
        ),
    ),
    Record(INVENTORY, b"joe@example.org-1", b"", inventory_text(b"joe@example.org-1", b"root-id", BY_ID, BY_NAME)),
    Record(CHK, BY_ID, b"", leaf(ENTRIES)),
    Record(CHK, BY_NAME, b"", leaf(NAMES, parts=2)),
    *(
        Record(TEXT, b"%b-id\x00joe@example.org-1" % name, b"", text)
        for name, text in (
            (b"root", b""),
            (b"readme", b"# Title\n"),
            (b"lib", b""),
            (b"link", b""),
            (b"run", b"#!/bin/sh\n"),
        )
    ),
)

SECOND_PARENTS = (
    Parent(b"joe@example.org-1", absent=False),
    Parent(b"ghost@example.org-1", absent=True),
)
PAGE = b"sha1:5b000c6b8527e884ad27d373eff8ae111a0ba0e3"
"""The page of entries after the change; a change of one entry is one of that page."""
SECOND = (
    Record(
        REVISION,
        b"joe@example.org-2",
        b"",
        (
            b"ll6:formati10ee"
            b"l9:committer21:Joe <joe@example.org>e"
            b"l8:timezonei0ee"
            b"l10:propertiesd11:branch-nick1:t4:bugs27:https://example.org/7 fixedee"
            b"l9:timestamp14:1000000001.000e"
            b"l11:revision-id17:joe@example.org-2e"
            b"l10:parent-idsl17:joe@example.org-119:ghost@example.org-1ee"
            b"l14:inventory-sha140:a1b9eb557051be3004c77df33c6cc87791328ef4e"
            b"l7:message6:Secondee"
        ),
    ),
    Record(
        INVENTORY,
        b"joe@example.org-2",
        b"",
        FIRST[1].text.replace(b"joe@example.org-1", b"joe@example.org-2").replace(FIRST[2].key, PAGE),
    ),
    Record(
        CHK,
        PAGE,
        b"",
        FIRST[2].text.replace(
            b"README\njoe@example.org-1\n46b6444596287e43e619610542bfb9d982232032\n8\n",
            b"README\njoe@example.org-2\n14ef6f7a874cbbe6999aa17e2cbe1e0049ff35a2\n19\n",
        ),
    ),
    Record(TEXT, b"readme-id\x00joe@example.org-2", b"joe@example.org-1", b"# Title\n\nOne line.\n"),
)

KINDS = system_of("bzr 2a").kinds


def segment(records: Sequence[Record], parents: Sequence[Parent]) -> bytes:
    """The segment of a revision whose own record is the first of `records`."""
    items = [NewRecord(*record) for record in records]
    texts = {(record.kind, record.key): record.text for record in FIRST + SECOND}
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: texts[kind, key])
    return writer.segment(records[0].key, parents, items)


def push(repository: PackRepository, *segments: bytes, refs: Mapping[bytes, bytes]) -> None:
    """A whole push."""
    bring(repository, "bzr 2a", segments, {ref: Tip(tip, b"1") for ref, tip in refs.items()})
