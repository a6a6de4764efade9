"""The access of stock git to the repositories of a site: git's smart protocol over HTTP and ssh."""
