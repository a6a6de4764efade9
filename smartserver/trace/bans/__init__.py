"""Bans: rules that forbid calls by name, and behaviours. Loaded only to ban calls, or to record or explain a trace."""
