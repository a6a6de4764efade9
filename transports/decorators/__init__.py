"""Decorators: each wraps one transport and adds one thing."""
