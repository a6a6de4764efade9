"""The adapter of Breezy: what its plugin `hpss` (`breezy_shim`) loads when an hpss:// URL is met."""
