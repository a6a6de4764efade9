"""The size limits of records and segments, each with the reason for its number."""

from __future__ import annotations

from typing import Final

MAX_ID: Final = 1024
"""The most bytes of a revision id or record key. Hashes have 20 or 32 bytes; the longest known id of free text has
under 200. With longer ids, a small reply could not name several."""

MAX_NAME: Final = MAX_ID
"""The most bytes of a ref name or map key: as many as of an id, because some maps have ids as keys."""

MAX_META: Final = 65_536
"""The most bytes of a record's meta. The longest known meta is a list of a text's parents: a few ids."""

MAX_PARENTS: Final = 65_536
"""The most parents of a revision. The widest merge of the Linux kernel has 66; generated histories have some
thousands."""

MAX_ENTRIES: Final = 1 << 20
"""The most records of one revision. A first import of the largest public source trees has about 500,000 files."""

MAX_RECORD: Final = 256 << 20
"""The most bytes of one fulltext. The server that checks a push, or the client that checks a pull, may hold it whole in
memory. A zstd frame of eight kilobytes can expand to this size."""

MAX_TAKEN: Final = MAX_RECORD
"""The most bytes of a stored segment. Both sides hold a segment whole in memory. A client refuses to push a larger one
before it sends anything."""

MAX_SEGMENT: Final = MAX_RECORD + (32 << 20)
"""The most bytes of any segment. A server builds segments of single records (`store.content`): a whole record of any
size, up to 4 MiB of other records before it, and their headers."""

MAX_REFERRING: Final = 32 << 20
"""The most bytes of a pushed record that refers to other records, such as a folder. Its references are parsed in one
call, which needs five times its size in memory and blocks all other threads. A folder of 500,000 files has 20 MB."""

BYTES_OF_REFERRING: Final = "bytes of a folder or of another record that names records"
"""The name of the limit `MAX_REFERRING` in a `LimitExceeded`."""

BYTES_OF_RECORD: Final = "bytes of a record"
"""The name of the limit in a `LimitExceeded` for a text. It must never change, because clients compare it."""

BYTES_OF_SEGMENT: Final = "bytes of a segment"
"""The name of the limit in a `LimitExceeded` for a segment, which also never changes."""

MAX_SEGMENT_TEXT: Final = 64 << 30
"""The sum of the fulltext lengths in one segment: the most that a server decodes for one request, by default."""

MAX_GRAPH: Final = 64 << 20
"""The most bytes of an announced graph. With about 24 bytes each, it holds 2.7 million revisions, twice the Linux
kernel's."""

MAX_ANNOUNCED: Final = 3_000_000
"""The most revisions of an announced graph: a few more than `MAX_GRAPH` holds with ids of 20 bytes. A server keeps up
to 35 bytes for each besides the graph itself."""

MAX_ANNOUNCED_PARENTS: Final = 4_000_000
"""The most parents of all revisions of an announced graph. Large histories have 1.0 to 1.3 for each revision."""

MAX_DEPTH: Final = 255
"""The most bases that are decoded to get a record's fulltext: the index keeps the number in one byte. The skip chains
of writers (`records.bases`) have at most 124 bases for a million versions."""

MAX_CHAIN: Final = 1 << 30
"""The most bytes of all fulltexts along a delta chain. 64 MiB decode in 0.18 s, so the slowest legal read takes 3 s."""

MAX_BASED: Final = 64 << 20
"""The most bytes of a base and a text together; a longer text is compressed without a base. Above, the largest useful
tables of zstd's match finder (2**24 entries) do not cover the base, and the encoder would need over 300 MB."""

MIN_BASE: Final = 8
"""The fewest bytes of a base: zstd ignores a shorter prefix."""

MAX_HUNKS: Final = 1 << 20
"""The most bytes of the hunks of one record. The decoder needs 40 MB of memory if all of them are as short as
possible."""

MIN_WINDOW_LOG: Final = 10
"""The base-2 logarithm of the smallest window of zstd, 1 KiB."""

MAX_WINDOW_LOG: Final = 27
"""The base-2 logarithm of the largest window that a reader accepts, 128 MiB: the default limit of zstd."""

WIDE: Final = 4 << 20
"""The bytes of a base and a text together above which an encoder enlarges zstd's tables: those of level 9 no longer
cover the base."""

PARTS_WINDOW_LOG: Final = 21
"""The base-2 logarithm of the window, 2 MiB, of a text over `MAX_BASED`. A server holds a window in memory for each
client that reads such a text. 200 MB of source take 13 % more bytes than with a window of the whole text, and 3 % more
than with 8 MiB."""

MAX_TABLE_LOG: Final = 24
"""The base-2 logarithm of the most entries of an encoder's hash table and chain table (64 MiB each). By measurement, 25
has no advantage."""

TEXT_CACHE: Final = 128 << 20
"""The most bytes of fulltexts that a writer caches as bases. Of 67,576 records with 577 MB, the writer then reads 231
twice; with 256 MiB it reads 96 twice, with 32 MiB 1,086."""
