"""bench.papers: its tables and plots, and what it takes from traces and profiles."""

from __future__ import annotations

from xml.etree import ElementTree

from bench.papers import tables
from bench.papers.counts import Files, counted
from bench.papers.profiles import shares
from bench.papers.results import Cell

TRACE = """\
openat(AT_FDCWD, "/r/db/current", O_RDONLY|O_CLOEXEC) = 3</r/db/current>
read(3</r/db/current>, ""..., 4096) = 7
lseek(3</r/db/current>, 5, SEEK_SET) = 5
pread64(3</r/db/current>, ""..., 100, 40) = 93
openat(AT_FDCWD, "/r/db", O_RDONLY|O_DIRECTORY) = 4</r/db>
openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 5</etc/passwd>
read(5</etc/passwd>, ""..., 4096) = 1000
openat(AT_FDCWD, "/m/file", O_WRONLY|O_CREAT|O_EXCL, 0666) = 6</m/file>
write(6</m/file>, ""..., 50) = 50
openat(AT_FDCWD, "/r/gone", O_RDONLY) = -1 ENOENT (No such file or directory)
read(3</r/db/current>, 0x7f, 10) = -1 EINTR (Interrupted system call)
mmap(NULL, 8192, PROT_READ, MAP_SHARED, 3</r/db/current>, 0) = 0x7f
"""


def cells() -> dict[str, Cell]:
    """A server's export, cold: ours 2.0 s with the largest caches and 3.0 by itself, Subversion 1.0."""
    seconds = {("ours", "fast"): 2.0, ("ours", "auto"): 3.0, ("f7", "fast"): 1.0}
    return {
        tables.name_of("export", "real", side, "packed", "server", config, "cold"): Cell((took, 0.25, 1e6), "abc")
        for (side, config), took in seconds.items()
    }


def test_a_table_has_ratios() -> None:
    (found,) = tables.tables(cells(), "export", "real")
    assert found.splitlines()[2:] == [
        "|  | cold, fast | cold, auto |",
        "|---|---|---|",
        "| *ours / f7, packed* | 2.00 | 3.00 |",
    ]


def test_auto_is_judged_by_the_best_size() -> None:
    assert tables.auto(cells()) == (1, ["export, real, ours, packed, server, auto, cold: 3.00 s; fast 2.00 s"])


def test_a_plot_has_a_bar_for_each_cell() -> None:
    svg = ElementTree.fromstring(tables.plot("a < b", tables.panels(cells(), "export", ["real", "wide"])))
    bars = [each.attrib["fill"] for each in svg.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert bars == [tables.COLORS[side] for side in ("ours", "f7", "ours")]


def test_a_trace_is_counted_inside_of_folders() -> None:
    assert counted(TRACE, ["/r/", "/m"]) == Files(1, 1, 1, 100, 2, 50, 1, 8192)


def test_shares_are_of_the_first_that_fits() -> None:
    found = {("libz.so", "crc32_z"): 20.0, ("libz.so", "inflate"): 30.0, ("[kernel]", "copy"): 10.0, ("x", "y"): 40.0}
    assert shares(found) == [0.2, 0.3, 0.1, 0.4]
