"""Repositories on a transport: packs, indexes, and the log by which they change.

Reading may raise CorruptFile (a file is damaged), Unsupported (it is of another release), RepositoryChanged (segments
are nowhere any more) and TransportError (the store failed). Work that an `Allowance` limits may also raise
LimitExceeded and Cancelled. After any of these nothing has changed. A change raises OutcomeUnknown if it may have been
made. A NoSuchFile about a file that a state names means that there is a newer state. A docstring names an error only if
a caller decides by it.
"""
