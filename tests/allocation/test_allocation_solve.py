"""One function for every solver: camu's by name, a user's own by import path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.allocation import SOLVERS, Problem, solve, solve_exact, solve_latency_gap
from camu.errors import InputError, UserCodeError
from helpers.allocation_instances import random_problem
from helpers.p2_instances import random_p2

OWN = """
import numpy as np
from camu.allocation import Allocation

def lowest(problem):
    power = 1e-4 * problem.max_power_watts
    return Allocation.of(problem, "lowest", power, np.zeros(problem.size), lower_bound=1e9,
                         details={"tries": 1})

def too_loud(problem):
    return Allocation.of(problem, "x", 2 * problem.max_power_watts, np.zeros(problem.size))

def too_short(problem):
    return Allocation.of(problem, "x", problem.max_power_watts[:1], np.zeros(1))

def nothing(problem):
    return None

def broken(problem):
    return problem.no_such_thing

def undefined(problem):
    return Allocation.of(problem, "x", np.full(problem.size, np.nan), np.zeros(problem.size))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_solvers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_solvers", raising=False)
    return "my_solvers"


@pytest.fixture
def problem() -> Problem:
    document = random_problem(8, clusters=4, tightness=1e3).to_dict()
    for index, cluster in enumerate(document["clusters"]):
        cluster["compute_seconds"] = 0.1 * (1 + index)
    return Problem.from_dict(document)


def same(one: Any, other: Any) -> bool:
    first, second = one.to_dict(), other.to_dict()
    return bool({**first, "seconds": 0.0} == {**second, "seconds": 0.0})


def test_names_choose_the_solver(problem: Problem) -> None:
    assert set(SOLVERS) == {"exact", "ppo", "latency"}
    assert same(solve(problem), solve_exact(problem))
    assert same(solve(problem, "exact"), solve_exact(problem))
    assert same(solve(problem, "latency"), solve_latency_gap(problem))


@pytest.mark.slow
def test_options_reach_ppo(problem: Problem) -> None:
    calls: list[tuple[str, int, int]] = []
    answer = solve(problem, "ppo", seed=5, steps=1100, progress=lambda *state: calls.append(state))
    assert answer.solver == "ppo"
    assert answer.details["seed"] == 5
    assert calls[-1][1:] == (1100, 1100)
    literal = solve(problem, "ppo", seed=5, steps=1100, reward="literal")
    rewards = [a.details["learning_curve"][0][2] for a in (answer, literal)]
    assert rewards[0] != rewards[1]


def test_an_unknown_solver_is_refused_with_the_names() -> None:
    with pytest.raises(InputError, match=r"did you mean `exact`.*ppo, latency.*module:name"):
        solve(random_problem(1), "exat")


@pytest.mark.parametrize("solver", ["ppo", "latency", "mine:solver"])
def test_p2_names_its_one_solver(solver: str) -> None:
    with pytest.raises(InputError, match=f"solver = {solver}: P2 has only the solver exact"):
        solve(random_p2(3, clusters=3), solver)


def test_your_own_function_is_certified_by_camu(own: str, problem: Problem) -> None:
    answer = solve(problem, f"{own}:lowest")
    assert answer.solver == "lowest"
    assert answer.details == {"tries": 1}
    assert answer.power_watts.tolist() == (1e-4 * problem.max_power_watts).tolist()
    # Its own claim of a lower bound counts nothing.
    assert answer.lower_bound == solve_exact(problem).lower_bound
    assert 0 < answer.gap < 1


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("too_loud", InputError, "not feasible: .*the power of cluster 0.*exceeds"),
        ("undefined", InputError, "a power is not positive"),
        ("too_short", InputError, r"shape \(1,\).*each of the 4 clusters"),
        ("nothing", InputError, "returned NoneType; it must return an Allocation"),
        ("broken", UserCodeError, "my_solvers.py, line .*no_such_thing"),
        ("absent", InputError, "has no absent"),
        ("__name__", InputError, "is not a function"),
    ],
)
def test_a_wrong_answer_is_refused_by_the_functions_name(
    own: str, problem: Problem, name: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        solve(problem, f"{own}:{name}")
    assert f"{own}:{name}" in str(caught.value)


def test_solving_exactly_imports_no_torch() -> None:
    code = (
        "import sys, camu.allocation as a;"
        "a.solve(a.Problem.from_json(sys.argv[1]));"
        "print('torch' in sys.modules, 'gymnasium' in sys.modules)"
    )
    example = Path(__file__).parents[2] / "docs" / "examples" / "problem.json"
    done = subprocess.run(
        [sys.executable, "-c", code, str(example)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_the_command_takes_your_own_function(own: str, problem: Problem, camu: Any) -> None:
    Path("P.json").write_text(json.dumps(problem.to_dict()))
    done = camu("allocate", "P.json", "--solver", f"{own}:lowest", "--json")
    assert done.code == 0, done.err
    assert np.isfinite(json.loads(done.out)["objective"])
    assert camu("allocate", "P.json", "--solver", "exat").code == 2
