"""`bench compare`: what is measured on which links, and its table and picture; the tools are in `peers`."""
