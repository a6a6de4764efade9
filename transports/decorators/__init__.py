"""Decorators of transports: each wraps one transport and adds one feature."""
