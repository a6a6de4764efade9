"""The two ways in which what was written becomes the repository's."""
