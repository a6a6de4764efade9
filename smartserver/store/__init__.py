"""Repositories on a transport: packs, indexes, and the log by which they change.

A read may raise CorruptFile (a file is damaged), Unsupported (a file is of another release), RepositoryChanged
(segments were removed) and TransportError (the store failed). Work that an `Allowance` limits may also raise
LimitExceeded and Cancelled. After any of these errors nothing has changed. A change raises OutcomeUnknown if it may
have been made. A NoSuchFile for a file that a state names means that there is a newer state. A docstring names an error
only if a caller decides by it.
"""
