"""The adapter for Mercurial. Its extension `hpss` imports this package when an hpss:// URL is used."""
