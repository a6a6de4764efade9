"""The ways in for stock git: its smart protocol over HTTP and ssh, on the repositories that a site serves."""
