"""Two revisions as Breezy 3.3 wrote them: a file, a program, a link and a folder; then a change and a ghost merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from builders import bring

from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import Parent, Record, Tip
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, TEXT

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
    Record(
        INVENTORY,
        b"joe@example.org-1",
        b"",
        (
            b"chkinventory:\n"
            b"search_key_name: hash-255-way\n"
            b"root_id: root-id\n"
            b"parent_id_basename_to_file_id: sha1:ae657ccdc8c8d98dcf4399771c65a36fe0da37cb\n"
            b"revision_id: joe@example.org-1\n"
            b"id_to_entry: sha1:9b20a1d1288e5985176c966ce51e8840906fb542\n"
        ),
    ),
    Record(
        CHK,
        b"sha1:9b20a1d1288e5985176c966ce51e8840906fb542",
        b"",
        (
            b"chkleaf:\n"
            b"65536\n"
            b"1\n"
            b"5\n"
            b"\n"
            b"lib-id\x004\n"
            b"dir: lib-id\n"
            b"root-id\n"
            b"lib\n"
            b"joe@example.org-1\n"
            b"link-id\x005\n"
            b"symlink: link-id\n"
            b"root-id\n"
            b"link\n"
            b"joe@example.org-1\n"
            b"lib/run\n"
            b"readme-id\x007\n"
            b"file: readme-id\n"
            b"root-id\n"
            b"README\n"
            b"joe@example.org-1\n"
            b"46b6444596287e43e619610542bfb9d982232032\n"
            b"8\n"
            b"N\n"
            b"root-id\x004\n"
            b"dir: root-id\n"
            b"\n"
            b"\n"
            b"joe@example.org-1\n"
            b"run-id\x007\n"
            b"file: run-id\n"
            b"lib-id\n"
            b"run\n"
            b"joe@example.org-1\n"
            b"bd971bec88149956458a10fc9c5ecb3eb99dd452\n"
            b"10\n"
            b"Y\n"
        ),
    ),
    Record(
        CHK,
        b"sha1:ae657ccdc8c8d98dcf4399771c65a36fe0da37cb",
        b"",
        (
            b"chkleaf:\n"
            b"65536\n"
            b"2\n"
            b"5\n"
            b"\n"
            b"\x00\x001\n"
            b"root-id\n"
            b"lib-id\x00run\x001\n"
            b"run-id\n"
            b"root-id\x00README\x001\n"
            b"readme-id\n"
            b"root-id\x00lib\x001\n"
            b"lib-id\n"
            b"root-id\x00link\x001\n"
            b"link-id\n"
        ),
    ),
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
