"""The packet network: real kernel TCP between two namespaces joined by an emulator; see `network`."""
