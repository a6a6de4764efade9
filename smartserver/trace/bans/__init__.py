"""Bans: rules that forbid calls by name, and behaviours. The package is loaded only if a ban is used."""
