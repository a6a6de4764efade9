"""Adapters between a version-control tool and the client."""
