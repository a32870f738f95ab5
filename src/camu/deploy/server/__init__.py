"""The server of a deployment: asks the nodes who they are, plans, and runs the rounds on them."""
