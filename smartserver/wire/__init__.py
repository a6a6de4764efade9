"""The wire protocol: bytes in, events out; no sockets, clocks or threads."""
