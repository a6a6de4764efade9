"""The adapter of Mercurial: what its extension `hpss` loads when an hpss:// URL is met."""
