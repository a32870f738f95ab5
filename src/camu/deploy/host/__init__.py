"""Programs and keys of a deployment: SuperLink, SuperNodes, and runs started from this machine."""
