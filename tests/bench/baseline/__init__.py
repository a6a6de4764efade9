"""`bench baseline`: what file operations over a link cost, beside one request for all of them."""
