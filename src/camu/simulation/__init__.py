"""The round loop, the virtual clock, the energy ledger, histories and checkpoints."""

from camu.simulation.history import History, Record
from camu.simulation.result import Result, simulate
from camu.simulation.run import Callback, Run

__all__ = ["Callback", "History", "Record", "Result", "Run", "simulate"]
