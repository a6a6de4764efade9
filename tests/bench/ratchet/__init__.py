"""`bench ratchet`: every remote command of brz, by stock Breezy over bzr:// and by our plugin over hpss://."""
