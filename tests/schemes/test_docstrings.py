"""The examples in the docstrings of the contract run as they are printed."""

from __future__ import annotations

import doctest

import pytest

import camu
from camu.schemes import contract
from camu.simulation import run

EXAMPLES = [
    test
    for module in (contract, run)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module)
    if test.examples
]


def test_every_method_of_the_contract_has_an_example() -> None:
    names = {test.name.rpartition(".")[2] for test in EXAMPLES}
    methods = {name for name in vars(camu.Scheme) if not name.startswith("_")}
    optional = {name for name in methods if callable(getattr(camu.Scheme, name))} - {"plan"}
    assert optional <= names
    assert {"Scheme", "Callback"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda test: test.name)
def test_example(example: doctest.DocTest) -> None:
    config = camu.load_config(preset="demo", overrides={"run.rounds": 3})
    example.globs |= {"camu": camu, "world": camu.build_world(config)}
    printed: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    result = runner.run(example, out=printed.append)
    assert result.failed == 0, "".join(printed)
