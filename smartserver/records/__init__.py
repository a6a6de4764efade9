"""Records and segments as bytes; pure, shared by both ends."""
