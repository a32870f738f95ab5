"""Learning in motion: the round loop with clock, energy ledger, history and checkpoints."""

from camu.simulation.history import History, Record
from camu.simulation.loop import Callback, Run, simulate

__all__ = ["Callback", "History", "Record", "Run", "simulate"]
