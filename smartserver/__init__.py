"""A version-control server and client in which every remote operation is one round trip."""

__version__ = "0.1.0"
