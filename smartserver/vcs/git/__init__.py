"""Git: its objects as records and back, their keys and references, its repositories on this machine."""
