import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.allocation.answer import Allocation
from camu.allocation.p1 import Problem, round_up
from camu.allocation.p1_exact import solve_exact
from camu.errors import CamuError, InputError
from helpers.allocation_instances import random_problem

GOOD = random_problem(4, clusters=4, tightness=0.5).to_dict()


def changed(key, value):
    """The good document with one value changed; ``clusters[2].gain`` reaches into a cluster."""
    document = copy.deepcopy(GOOD)
    place, name = document, key
    if key.startswith("clusters["):
        index, name = key[9:].split("].")
        place = document["clusters"][int(index)]
    place[name] = value
    return document


NUMBERS = [
    *(f"clusters[3].{name}" for name in ("weight", "gain", "compute_joules", "bandwidth_hz")),
    "clusters[3].max_power_watts",
    *("noise_watts", "payload_bits", "energy_joules", "max_power_watts", "max_total_power_watts"),
]


@pytest.mark.parametrize("key", [*NUMBERS, "clusters[3].descent", "clusters[0].penalty"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", [1], True, 10**400, {}])
def test_a_number_must_be_a_finite_number(key: str, value: Any) -> None:
    with pytest.raises(InputError, match="finite") as caught:
        Problem.from_dict(changed(key, value), "fleet/P.json")
    assert str(caught.value).startswith(f"fleet/P.json: {key} is ")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", [*NUMBERS, "clusters[1].penalty", "clusters[1].max_extra_updates"])
def test_negative_numbers_are_refused(key: str) -> None:
    with pytest.raises(InputError) as caught:
        Problem.from_dict(changed(key, -1))
    assert key in str(caught.value)


@pytest.mark.parametrize("key", [k for k in NUMBERS if "weight" not in k and "compute" not in k])
def test_zero_is_refused_where_it_means_nothing(key: str) -> None:
    with pytest.raises(InputError, match="positive number") as caught:
        Problem.from_dict(changed(key, 0))
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("clusters", [], "at least one cluster"),
        ("clusters", {}, "at least one cluster"),
        ("clusters", [3], r"clusters\[0\] must be an object"),
        ("clusters[1].multi_update", 1, r"clusters\[1\].multi_update is 1; it must be true or"),
        ("clusters[1].max_extra_updates", 1.5, "integer from 0 to 1000000"),
        ("clusters[1].max_extra_updates", 10**30, "integer from 0 to 1000000"),
        ("clusters[1].gian", 1.0, r"clusters\[1\].gian is not a known key; did you mean `gain`"),
        ("energy_jouls", 1.0, "energy_jouls is not a known key; did you mean `energy_joules`"),
        ("zzz", 1.0, "known keys are kind, clusters"),
        ("power_law", "cubic", 'must be "power" or "amplitude"'),
        ("first_update_free", 0, "first_update_free is 0; it must be true or false"),
        ("noise_watts", 1e-29, "noise_watts, bandwidth_hz and"),
        ("clusters[2].compute_seconds", 1.0, "for 1 of 4 clusters"),
    ],
)
def test_mistakes_are_named(key: str, value: Any, says: str) -> None:
    document = changed(key, value)
    if key == "noise_watts":
        document["clusters"][0]["gain"] = 1e10
    with pytest.raises(InputError, match=says):
        Problem.from_dict(document)


@pytest.mark.parametrize("key", ["clusters", "energy_joules", "noise_watts"])
def test_a_missing_key_is_named(key: str) -> None:
    document = copy.deepcopy(GOOD)
    del document[key]
    with pytest.raises(InputError, match=f"{key} is missing"):
        Problem.from_dict(document)
    del (cluster := copy.deepcopy(GOOD))["clusters"][2]["gain"]
    with pytest.raises(InputError, match=r"clusters\[2\].gain is missing"):
        Problem.from_dict(cluster)


def test_a_cap_at_the_top_holds_for_clusters_without_their_own() -> None:
    document = changed("clusters[2].max_power_watts", 0.25)
    cap = GOOD["max_power_watts"]
    assert Problem.from_dict(document).max_power_watts.tolist() == [cap, cap, 0.25, cap]
    del document["max_power_watts"]
    with pytest.raises(InputError, match=r"clusters\[0\].max_power_watts is missing"):
        Problem.from_dict(document)
    for index, cluster in enumerate(document["clusters"]):
        cluster["max_power_watts"] = 1.0 + index
    problem = Problem.from_dict(document)
    assert problem.max_power_watts.tolist() == [1, 2, 3, 4]
    assert problem.to_dict()["clusters"][3]["max_power_watts"] == 4
    assert Problem.from_dict(problem.to_dict()).to_dict() == problem.to_dict()
    [said] = problem.violations(np.array([0.1, 2.5, 0.1, 3.5]), np.zeros(4))
    assert said == "the power of cluster 1, 2.5 W, exceeds its 2 W"


@pytest.mark.parametrize("document", [None, 3, [], "text"])
def test_the_document_must_be_an_object(document: Any) -> None:
    with pytest.raises(InputError, match="the document must be an object"):
        Problem.from_dict(document)


def test_files_that_cannot_be_problems_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "P.json"
    with pytest.raises(InputError, match="cannot be read"):
        Problem.from_json(path)
    with pytest.raises(InputError, match="cannot be read"):
        Problem.from_json(tmp_path)
    cases = [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ]
    cases += [(b'{"power_law": "power", "power_law": "power"}', "power_law appears twice")]
    for content, says in cases:
        path.write_bytes(content)
        with pytest.raises(InputError, match=says) as caught:
            Problem.from_json(path)
        assert str(caught.value).startswith(str(path))


def test_a_problem_survives_its_file(tmp_path: Path) -> None:
    for index in range(20):
        problem = random_problem(
            index, total_cap=index % 3 == 0, penalty=index % 4 >= 2, own_caps=index % 5 == 0
        )
        path = tmp_path / "P.json"
        path.write_text(json.dumps(problem.to_dict()))
        again = Problem.from_json(path)
        assert again.to_dict() == problem.to_dict()
        assert solve_exact(again).objective == solve_exact(problem).objective


def test_no_updates_with_positive_descent_is_an_input_error() -> None:
    document = copy.deepcopy(GOOD)
    for cluster in document["clusters"]:
        cluster["descent"] = -0.1
    with pytest.raises(InputError, match="descent"):
        solve_exact(Problem.from_dict(document))


def test_weights_of_zero_everywhere_are_refused() -> None:
    document = copy.deepcopy(GOOD)
    for cluster in document["clusters"]:
        cluster["weight"] = 0
    with pytest.raises(InputError, match="weight is 0"):
        Problem.from_dict(document)


def test_the_formulas_are_those_of_the_paper() -> None:
    problem = Problem(
        weight=np.array([0.25, 0.75]),
        gain=np.array([2e-11, 1e-11]),
        descent=np.array([0.1, 0.2]),
        compute_joules=np.array([0.5, 0.25]),
        bandwidth_hz=np.array([1e6, 2e6]),
        multi_update=np.array([True, False]),
        max_extra_updates=np.array([3, 3]),
        noise_watts=1e-12,
        payload_bits=7e5,
        energy_joules=10.0,
        max_power_watts=1.0,
        power_law="amplitude",
        penalty=np.array([0.01, 0.0]),
    )
    power, extra = np.array([0.5, 0.2]), np.array([2, 0])
    error = 0.25**2 * 1e-12 / (0.25 * 2e-11) + 0.75**2 * 1e-12 / (0.04 * 1e-11)
    below = 0.1 * 3 - 0.01 * 9 + 0.2
    assert problem.objective(power, extra) == pytest.approx(error / below)
    joules = 0.5 * 7e5 / (1e6 * np.log2(11)) + 0.2 * 7e5 / (2e6 * np.log2(3)) + 1.5 + 0.25
    assert problem.spent_joules(power, extra) == pytest.approx(joules)
    assert problem.extra_limit.tolist() == [3, 0]
    assert problem.violations(power, extra) == []
    assert len(problem.violations(np.array([2.0, 0.2]), np.array([0, 1]))) == 2
    batch = problem.objective(np.tile(power, (5, 1)), np.tile(extra, (5, 1)))
    assert batch.shape == (5,)


def test_the_first_update_can_be_free_as_printed() -> None:
    document = copy.deepcopy(GOOD)
    paid, extra = Problem.from_dict(document), np.ones(4)
    document["first_update_free"] = not document["first_update_free"]
    free = Problem.from_dict(document)
    difference = abs(paid.spent_joules(extra, extra) - free.spent_joules(extra, extra))
    assert difference == pytest.approx(paid.compute_joules.sum())


def test_an_answer_survives_its_document() -> None:
    problem = random_problem(4, clusters=4, tightness=0.5)
    answer = solve_exact(problem)
    document = json.loads(json.dumps(answer.to_dict()))
    again = Allocation.from_dict(document)
    assert again.to_dict() == answer.to_dict()
    assert np.array_equal(again.power_watts, answer.power_watts)
    assert again.extra_updates.dtype == answer.extra_updates.dtype
    assert again.binding == answer.binding
    assert again.details == answer.details


def test_a_notebook_shows_the_answer_as_a_table() -> None:
    problem = random_problem(4, clusters=4, tightness=0.5)
    answer = Allocation.of(problem, "<b>mine</b>", problem.max_power_watts, np.zeros(4))
    shown = answer._repr_html_()
    assert shown.count("<tr>") == 5
    assert "&lt;b&gt;mine&lt;/b&gt;" in shown
    assert "<b>" not in shown


@given(st.floats(1e-250, 1e250))
def test_rounding_up_never_rounds_down(value: Any) -> None:
    assert value <= float(round_up(value)) <= value * (1 + 1.1e-9)


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_any_value_in_any_place_is_an_answer_or_a_sentence(value: Any) -> None:
    for key in ("clusters", *NUMBERS, "clusters[0].multi_update", "power_law"):
        with contextlib.suppress(CamuError):
            answer = solve_exact(Problem.from_dict(changed(key, value)))
            assert np.isfinite(answer.objective)
            assert answer.lower_bound <= answer.objective
