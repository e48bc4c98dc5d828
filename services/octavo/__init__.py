"""The command line: starts a local cluster, watches it, and asks it how it is."""
