"""The suites of a run, by name."""

ARRANGEMENTS = {
    "named": "the locations that a command names are remote",
    "defaults": "so are those that a branch remembers",
    "light": "the tree that a command works in is a lightweight checkout",
    "bound": "the branch that a command works in is bound",
}
"""The part of a command that is remote in the blackbox suite, by arrangement."""

SUITES = {
    "per_branch": "(RemoteBranchFormat-default)",
    "per_controldir": "(RemoteBzrDirFormat-default)",
    "per_controldir_colo": "(RemoteBzrDirFormat-default)",
    "per_interbranch": "(GenericInterBranch,BzrBranchFormat7,BzrBranchFormat7)",
    "per_interrepository": "(InterDifferingSerializer,RepositoryFormat2a,RepositoryFormatKnitPack6RichRoot)",
    "per_repository": "(RemoteRepositoryFormat-default)",
    "per_transport": "(RemoteTCPTransport,SmartTCPServer_for_testing)",
}
"""By interface suite: the end of the names of the cases to run."""
