"""The models and the engine that runs their gradient work fast.

This package knows devices only as lists of sample indices and units only as weighted sets of
devices; radios, schemes and clusters are other packages' business.
"""
