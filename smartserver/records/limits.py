"""Every size limit of records and segments, each with where its number comes from."""

from __future__ import annotations

from typing import Final

MAX_ID: Final = 1024
"""Bytes of a revision id or record key. Of ids that are free text the longest seen has under 200 bytes; hashes
have 20 or 32. A longer one would not fit beside others in one small reply."""

MAX_NAME: Final = MAX_ID
"""Bytes of a ref name or map key: some maps have ids as keys."""

MAX_META: Final = 65_536
"""Bytes of a record's meta. The longest known is a text's list of parents: a few ids."""

MAX_PARENTS: Final = 65_536
"""Parents of a revision. The widest merge of the Linux kernel has 66; generated histories reach some thousands."""

MAX_ENTRIES: Final = 1 << 20
"""Records of one revision. A first import of the largest public source trees brings about 500,000 files."""

MAX_RECORD: Final = 256 << 20
"""Bytes of one fulltext. A server that checks a push and a client that checks a pull hold it whole in memory, and eight
kilobytes of zstd can claim all of it."""

MAX_TAKEN: Final = MAX_RECORD
"""Bytes of a stored segment. Both sides hold it whole, too. A client that would push more says so before it sends."""

MAX_SEGMENT: Final = MAX_RECORD + (32 << 20)
"""Bytes of any segment. A server puts records into one for a reader (`store.content`): the largest one whole, with up
to 4 MiB of others before it, and their headers."""

MAX_REFERRING: Final = 32 << 20
"""Bytes of a record that names others, as a folder does, that a push may bring: what it names is taken apart in one go,
at five times its size, while nothing else runs. A folder of 500,000 files has 20 MB."""

BYTES_OF_REFERRING: Final = "bytes of a folder or of another record that names records"
"""The words of `LimitExceeded` for one over its limit."""

BYTES_OF_RECORD: Final = "bytes of a record"
"""The words of `LimitExceeded` for a text over its limit. They travel, and clients go by them: they never change."""

BYTES_OF_SEGMENT: Final = "bytes of a segment"
"""The same of a segment."""

MAX_SEGMENT_TEXT: Final = 64 << 30
"""Sum of the fulltext lengths one segment may claim: what the server decodes for one request at most, by default."""

MAX_GRAPH: Final = 64 << 20
"""Bytes of an announced graph. At about 24 bytes a revision it holds 2.7 million, twice the Linux kernel's."""

MAX_ANNOUNCED: Final = 3_000_000
"""Revisions of an announced graph: what `MAX_GRAPH` holds with ids of 20 bytes, and a few. A server keeps up to
35 bytes of each besides the graph itself."""

MAX_ANNOUNCED_PARENTS: Final = 4_000_000
"""Parents in an announced graph, all together. Large histories have 1.0 to 1.3 for each revision."""

MAX_DEPTH: Final = 255
"""Delta steps from a record to its full text: the index keeps the depth in one byte. Writers stay under 100."""

MAX_CHAIN: Final = 1 << 30
"""Sum of the fulltext lengths along a delta chain. 64 MiB decode in 0.18 s, so the slowest legal read takes 3 s."""

MAX_BASED: Final = 64 << 20
"""Bytes of base and text together beyond which a record goes without a base: above, the match finder's tables that
still find the base (2**24 entries) lose it again, and the encoder needs over 300 MB."""

MIN_BASE: Final = 8
"""A shorter base counts as none: zstd ignores a prefix under 8 bytes."""

MAX_HUNKS: Final = 1 << 20
"""Bytes of the hunks of one record: as many of the shortest ones take 40 MB of memory."""

MIN_WINDOW_LOG: Final = 10
"""zstd's own least window, 1 KiB."""

MAX_WINDOW_LOG: Final = 27
"""The largest window a reader accepts (128 MiB), the default limit of zstd itself."""

WIDE: Final = 4 << 20
"""Bytes of base and text together above which level 9's own hash tables no longer reach back over a whole base."""

PARTS_WINDOW_LOG: Final = 21
"""The window of a text over `MAX_BASED`, 2 MiB: what a server holds for each client that reads one. 200 MB of source
take 13 % more bytes than with all of it in the window, 3 % more than with 8 MiB."""

MAX_TABLE_LOG: Final = 24
"""The largest hash and chain tables an encoder makes (64 MiB each); 25 was measured to gain nothing."""

TEXT_CACHE: Final = 128 << 20
"""Bytes of fulltexts a writer keeps to use as bases. Of 67,576 records in 577 MB it has to ask for 231 again then, for
96 with 256 MiB, for 1,086 with 32."""
