"""camu plans, simulates and deploys federated learning over wireless devices."""

from importlib.metadata import version

__version__ = version("camu-fl")
