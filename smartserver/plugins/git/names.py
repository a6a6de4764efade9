"""Names of refs that git gives a meaning."""

HEAD = "HEAD"
"""The setting of a repository that names the branch a clone checks out."""

HEADS = b"refs/heads/"
TAGS = b"refs/tags/"

SHORT_FOR = (b"", b"refs/", TAGS, HEADS, b"refs/remotes/")
"""What a short name may lack in front, in git's order."""
