"""Groups of devices, their contribution, the costs of a round, and plans."""
