"""Data sets with verified sources, and partitions that deal them to devices."""

from camu.data.catalog import CATALOG, DatasetSpec
from camu.data.federation import Federation, federate
from camu.data.store import Dataset, is_cached, load

__all__ = ["CATALOG", "Dataset", "DatasetSpec", "Federation", "federate", "is_cached", "load"]
