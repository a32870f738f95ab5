"""Measurements of speed: training, evaluation, whole runs, and growth with the fleet."""
