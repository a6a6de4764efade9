"""Version-control systems' objects to revisions and records, and back."""
