"""Measurements of speed: `camu bench`."""
