"""Results as Parquet files that say which table they hold, in which version of its columns."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.files import parquet_table, write_bytes
from camu.simulation.history import data_frame

SCHEMA = 1  # of the columns of both tables; a column that changes its meaning makes it 2
TABLES = ("comparison", "board")
_WHAT = "what `camu compare` or `camu board join` wrote with --parquet"


def check_parquet(path: Path | None) -> None:
    """Refuse to write this file where pyarrow is absent."""
    if path is not None and importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            f"{path}: Parquet is written and read by pyarrow; install it with "
            "pip install 'camu-fl[hf]', or use --csv"
        )


def write_parquet(path: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of one of TABLES; all have the same columns."""
    check_parquet(path)
    import pyarrow  # deferred: only Parquet needs it
    import pyarrow.parquet

    found = pyarrow.Table.from_pylist([dict(row) for row in rows])
    # A column without any value keeps a type that a number can be put into.
    types = [
        field.with_type(pyarrow.float64()) if pyarrow.types.is_null(field.type) else field
        for field in found.schema
    ]
    about = {"camu.table": table, "camu.schema": str(SCHEMA)}
    stream = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(found.cast(pyarrow.schema(types, metadata=about)), stream)
    write_bytes(path, stream.getvalue().to_pybytes())


def read_results(path: str | Path) -> Any:
    """The runs of a comparison or a board, from their file.

    Parameters:
        path: what `camu compare --parquet` or `camu board join --parquet` wrote.

    Returns:
        A pandas (or polars) data frame with a row per run; shares are from 0 to 1.
    """
    check_parquet(Path(path))
    found = parquet_table(Path(path), _WHAT, f"give {_WHAT}")
    about = {key.decode(): value.decode() for key, value in (found.schema.metadata or {}).items()}
    if about.get("camu.table") not in TABLES:
        raise InputError(f"{path}: is no table of results; give {_WHAT}")
    if (schema := about.get("camu.schema")) != str(SCHEMA):
        raise InputError(
            f"{path}: its columns are those of schema {schema}, and this version of camu reads "
            f"schema {SCHEMA}; read it with the version that wrote it, or write it again"
        )
    return data_frame(found.to_pylist())
