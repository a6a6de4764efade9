"""Calls that must not be made: rules by name, and behaviours. Loaded only where somebody bans something."""
