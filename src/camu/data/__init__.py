"""Data sets with verified sources, and partitions that deal them to devices."""

from camu.data.catalog import CATALOG, Dataset, DatasetSpec
from camu.data.federation import Federation, federate
from camu.data.own import is_own
from camu.data.store import dataset_spec, is_cached, load, load_configured

__all__ = [
    "CATALOG",
    "Dataset",
    "DatasetSpec",
    "Federation",
    "dataset_spec",
    "federate",
    "is_cached",
    "is_own",
    "load",
    "load_configured",
]
