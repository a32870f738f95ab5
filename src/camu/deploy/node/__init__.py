"""A node of a deployment: reports on its devices and trains on their data."""
