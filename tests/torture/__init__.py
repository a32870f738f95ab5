"""Bad inputs, kills, flipped bits and full disks, generated from a seed and counted.

`make torture` runs all of it; in the directory `tests`, `python -m torture --help` shows the parts.
"""
