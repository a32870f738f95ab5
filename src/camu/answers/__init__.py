"""Answers for the owner of a fleet: what learning costs, what else it could cost, and why."""
