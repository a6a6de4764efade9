"""The RPC methods, one module each; `verbs.all` loads them."""
