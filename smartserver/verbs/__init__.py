"""The RPC methods: a module for each, and one for all file-level verbs. `verbs.all` loads them."""
