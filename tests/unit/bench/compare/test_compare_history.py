"""bench.histories: the same revisions for every tool, alike each time."""

from __future__ import annotations

import re

from bench.histories import CHANGED_AT_ONCE, FILES, REVISIONS, git_stream, revisions, svn_dump


def test_the_first_revision_has_all_files_and_each_other_changes_some() -> None:
    first, *others = revisions()
    assert len(first) == FILES
    assert len(others) == REVISIONS - 1
    files = dict(first)
    for changed in others:
        assert len(changed) == CHANGED_AT_ONCE
        assert all(files[name] != text for name, text in changed.items()), "nothing has changed"
        files |= changed


def test_it_is_alike_each_time() -> None:
    assert list(revisions()) == list(revisions())
    assert git_stream() == git_stream()
    assert svn_dump() == svn_dump()


def test_git_and_svn_are_told_the_same() -> None:
    """Names and texts, in order."""
    stream, dump = git_stream(5, 4), svn_dump(5, 4)
    told = [(name, text) for changed in revisions(5, 4) for name, text in changed.items()]
    assert re.findall(rb"^M 100644 inline (.*)\ndata", stream, re.MULTILINE) == [name.encode() for name, _ in told]
    assert re.findall(rb"^Node-path: trunk/(.*)\nNode-kind: file", dump, re.MULTILINE) == [n.encode() for n, _ in told]
    for _, text in told:
        assert b"data %d\n%s" % (len(text), text) in stream
        assert b"Content-length: %d\n\n%s\n\n" % (len(text), text) in dump


def test_each_git_commit_says_its_parent() -> None:
    """Breezy's importer does not take the branch's tip by itself."""
    stream = git_stream(3, 2)
    assert re.findall(rb"^mark :(\d+)", stream, re.MULTILINE) == [b"1", b"2", b"3"]
    assert re.findall(rb"^from :(\d+)", stream, re.MULTILINE) == [b"1", b"2"]


def test_the_properties_of_a_svn_revision_are_as_long_as_it_says() -> None:
    for length, properties in re.findall(
        rb"^Prop-content-length: (\d+)\nContent-length: \d+\n\n(.*?PROPS-END\n)", svn_dump(3, 2), re.M | re.S
    ):
        assert int(length) == len(properties)
