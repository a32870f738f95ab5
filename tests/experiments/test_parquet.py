"""Results as Parquet: read back as they were, and refused where they are something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import camu
from camu.errors import InputError
from camu.experiments import parquet
from camu.experiments.parquet import write_parquet

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
ROWS: list[dict[str, Any]] = [
    {"scheme": "camu", "seed": 0, "score": 0.1 + 0.2, "to_target": None, "rounds": 3},
    {"scheme": "fedsgd", "seed": 1, "score": None, "to_target": None, "rounds": 4},
]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "results.parquet"
    write_parquet(path, "comparison", ROWS)
    found = camu.read_results(path)
    assert list(found.columns) == list(ROWS[0])
    assert found["score"][0] == 0.1 + 0.2
    assert found["score"].isna().tolist() == [False, True]
    assert found["scheme"].tolist() == ["camu", "fedsgd"]
    schema = pyarrow.parquet.read_schema(path)  # what programs without camu see
    assert schema.metadata == {b"camu.table": b"comparison", b"camu.schema": b"1"}
    assert [str(kind) for kind in schema.types[1:]] == ["int64", "double", "double", "int64"]


def test_other_files_and_other_schemas_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(InputError, match=r"other\.parquet: is no table of results; give what"):
        camu.read_results(path)
    path.write_bytes(b"scheme,seed\n")
    with pytest.raises(InputError, match=r"other\.parquet: cannot be read as Parquet"):
        camu.read_results(path)
    with monkeypatch.context() as later:
        later.setattr(parquet, "SCHEMA", 2)
        write_parquet(path, "board", ROWS)
    with pytest.raises(InputError, match=r"columns are those of schema 2, .* reads schema 1"):
        camu.read_results(path)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'camu-fl\[hf\]', or use --csv"):
        write_parquet(tmp_path / "a.parquet", "board", ROWS)
