"""The adapter for Breezy. Its plugin `hpss` (`breezy_shim`) imports this package when an hpss:// URL is used."""
