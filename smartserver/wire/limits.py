"""Every limit of the protocol, each with the reason for its number. Sizes are in bytes, times in seconds."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# Framing

MAX_FRAME = 256 * KIB
"""The most bytes of the payload of one frame. At 10 Mbit/s a PING waits only 0.2 s for each frame before it, and the
header of nine bytes is only 0.003 %. A message whose payload fills a frame continues in the next."""

MAX_PREFACE = 64
"""The most bytes of the opening line, newline included. `hpss!` and nine versions of five digits are 60."""

MAX_PING = 64
"""The most bytes of the payload of a PING or PONG. A clock value and a nonce fit; HTTP/2 has 8, WebSocket 125."""

MAX_REASON = 1 * KIB
"""The most bytes of the payload of GOAWAY, which is one sentence for the user."""

MAX_OPEN_REQUESTS = 128
"""The most requests without a final answer on one connection; RFC 9113 (6.5.2) advises no fewer than 100 for HTTP/2."""

MAX_MESSAGE = 64 * MIB
"""The most bytes of a message joined from its frames. 500,000 refs of 120 bytes, more than the largest reply in use,
are 60 MB."""

MAX_REQUEST = 8 * MIB
"""The most bytes of a request joined from its frames. `MAX_CALLS` calls of 80 bytes, the largest mirror in use, are 5.2
MB."""

# What one request may hold

MAX_CALLS = 65_536
"""The most calls in one request: three times those of a mirror of 20,000 refs, rounded up."""

MAX_FILE_CALLS = 1024
"""The most file-level (VFS) calls in one request. Each may keep a file open until its content is sent, and a server
asks the system for 65,536 descriptors. Reading all packs of a repository takes some 40 calls."""

MAX_RESULTS = 16 * MIB
"""The most bytes of the results of one request's calls: without it, a small request could cause a huge answer."""

# The most that a client accepts of an answer: decoded, a byte of msgpack may become 100.

MAX_ENTRIES = 1 << 19
"""The most refs of an answer, the most tips of all its refs, and the most entries of all its maps. A repository has no
more refs, tips and entries together (`store.state.MAX_STATE` / `store.table.LEAST_ENTRY`)."""

MAX_TIPS = 65_536
"""The most tips of one ref. The largest known number of heads of a branch is some thousands."""

MAX_MAPS = 64
"""The most maps of an answer. A repository has no more (`store.state.MAX_MAPS`)."""

MAX_WORDS = 256
"""The most settings of an answer, the most capabilities, and the most pieces of advice. No repository has more than 64
settings."""

MAX_SPANS = 256
"""The most spans (timed steps of the server) in an answer, and in an END."""

MAX_COUNTS = 128
"""The most counts (values of the server's counters) in an answer, and in an END."""

MAX_SPAN_NAME = 100
"""The most characters of the name of a span."""

MAX_END = 40 * KIB
"""The most bytes of the ServerTrace in an END: 256 spans with names of 100 characters each, and 128 counts."""

MAX_ARGUMENTS = 4 * MIB + 64 * KIB
"""The most bytes of the arguments of one error or advice. The largest error names 4,096 ids of 1,024 bytes, which are
4.2 MB."""

MAX_PUSH_OPTIONS = 64 * KIB
"""The most bytes of the push options of a request, which the log keeps for a day."""

MAX_HAVES = 256
"""The most haves in one pull. 256 ids of 20 bytes are 5.4 KB, under half of `INITIAL_WINDOW`."""

MAX_TIPS_KNOWN = 256
"""The most tips that a client remembers of one remote: as many as it may send."""

MAX_ABSENT = 4096
"""The most parents that a pull may name as absent from the client (shallow history). 4,096 ids of 20 bytes are 86
KB."""

MAX_BULK_RATIO = 32
"""The factor by which a bulk stream in an upload may grow when it is decompressed, `BULK_ALLOWANCE` aside. A few bytes
of zstd can expand to 128 KiB, all of which would be stored. Records are compressed already: 3,000 revisions of a
project grew 1.7 times, and 3,000 empty files 2.4 times, at most 4.0 in between. Only data that repeats without a base
grows more: 200 copies of a picture grew 131 times. When such a stream is refused, the client sends the body without a
bulk stream."""

BULK_BYTES = "bytes that a bulk stream became"
"""The name of the limit in the error for a stream over `MAX_BULK_RATIO`. By this name, a client knows to send the body
without a bulk stream."""

BULK_ALLOWANCE = 64 * KIB
"""Bytes that are added to the received bytes of a bulk stream before `MAX_BULK_RATIO` is applied."""

MAX_PATH = 1 * KIB
"""The most bytes of a repository path in UTF-8: the limit of the strictest file system in use (macOS), so that any can
serve it."""

GRAPH_FIRST_THRESHOLD = 64 * KIB
"""Bytes of a push above which the client sends the graph before the records, so that the server can refuse early. A
smaller push that is refused wastes at most half a second at 1 Mbit/s."""

# Moving bytes

RECEIVE_CHUNK = 128 * KIB
"""The most bytes of one read from a socket, and of the core's buffer beyond one frame. With 64 KiB, a client on
loopback takes a quarter more processor time. With more, the memory allocator returns each chunk to the system, which
costs more."""

PIECE = 512 * KIB
"""The most bytes of one read of a pack for a pull's body. They are sent as two frames. Pieces of 16 KiB reach a third
of the speed. A connection has two pieces in memory: one that is sent, and the next one, which is read ahead."""

NOTSENT_LOWAT = 128 * KIB
"""The value of TCP_NOTSENT_LOWAT: more unsent bytes in the kernel would delay urgent frames. Half a frame is enough,
because bytes that are sent but not acknowledged do not count. With this value, 50 MB took as long as on a bare
connection, at 100 Mbit/s and 250 ms, and at 20 Mbit/s and 1 s (`bench bulk`). The kernel adapts the buffer sizes."""

INITIAL_WINDOW = 14_480
"""The size of ten TCP segments of 1,448 bytes (RFC 6928). A request or reply of at most this size needs one network
round trip."""

UNREAD_BYTES = 4 * MIB
"""The most bytes of answers that a server holds while its peer does not read them; bodies and the longest answer do not
count. Above this limit the server drops the connection. The limit is enough for `MAX_OPEN_REQUESTS` answers of 32 KiB,
more than twice `INITIAL_WINDOW` each, or for 200,000 PONGs."""

DRAIN_BYTES = 64 * MIB
"""The most bytes that a server reads and discards of a refused upload before it half-closes: the bytes in flight at 1
Gbit/s with a round trip of half a second."""

DRAIN_SECONDS = 60.0
"""The most seconds for which a server reads and discards a refused upload, so that even a client with a round trip of
many seconds sees the refusal."""

# Idleness; nothing has a limit on its total time

PING_INTERVAL = 20.0
"""Seconds of silence after which a side that waits for an answer sends PING. NAT tables drop idle TCP connections after
60 s or more."""

IDLE_TIMEOUT = 120.0
"""Seconds of silence with unanswered PINGs after which the peer counts as disconnected: six intervals."""

STALL_TIMEOUT = 600.0
"""The most seconds that a server waits for the next byte of a request, or for its peer to take the next byte of an
answer (`serve --idle-timeout`). It is five times `IDLE_TIMEOUT`, because a client that computes between two pieces
answers no PING."""

KEEP_IDLE = 900.0
"""Seconds for which a server keeps a connection without an open request: enough for the pause between two commands."""
