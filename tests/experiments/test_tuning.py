"""`tune`: what is searched, what is found, and what a kill, damage or other seeds change."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.errors import InputError
from camu.experiments import scheduler
from camu.experiments.tuning.ranges import (
    Budget,
    read_asked,
    read_budgets,
    spaces_of,
    spread,
    tidy,
)
from camu.experiments.tuning.sampler import START, TOGETHER, give_up, proposals
from camu.experiments.tuning.search import FIRST_SEED
from camu.experiments.tuning.trial import Trial, best_of, front_of
from camu.experiments.tuning.tune import plans_of, search, tune
from camu.learning.metrics import find_metric
from camu.schemes.tunable import Between, OneOf, Range
from camu.schemes.variants import read_variants
from camu.sealed import DamagedError
from helpers.configs import small

ACCURACY, LOSS = find_metric("accuracy"), find_metric("loss")
SPACE: dict[str, Range] = {
    "x": Between(0.001, 1.0, log=True),
    "n": Between(1, 9),
    "m": OneOf((0, 1)),
}
TINY = small(data__samples_per_device=20, run__seed=2)
BUDGET = {"joules": 4.0}


def a_trial(
    number: int, *scores: Sequence[float | None], pruned: bool = False, **settings: Any
) -> Trial:
    return Trial(number, settings, tuple(map(tuple, scores)), {"joules": 1.0}, 3, pruned)


def bowl(settings: dict[str, Any]) -> float:
    """A score that is best, 1, at x = 0.03, n = 7 and m = 1."""
    distance = abs(math.log10(settings["x"] / 0.03)) + abs(settings["n"] - 7) / 4
    return 1 - 0.3 * distance - 0.3 * (1 - settings["m"])


def sought(count: int, seed: int) -> list[Trial]:
    """The trials of a search on the bowl."""
    trials: list[Trial] = []
    while len(trials) < count:
        first = len(trials)
        found = proposals(SPACE, trials, first, TOGETHER, ACCURACY, seed)
        trials += [a_trial(first + n, [bowl(own)], **own) for n, own in enumerate(found)]
    return trials


def test_ranges_are_read_as_they_are_written() -> None:
    texts = ["training.learning_rate=0.01:1:log", "camu@threshold=1:4", "levels=1,3", "share=none"]
    found = read_asked(texts)
    assert [(one.scheme, one.key, one.range) for one in found] == [
        (None, "training.learning_rate", Between(0.01, 1, log=True)),
        ("camu", "threshold", Between(1, 4)),
        (None, "levels", OneOf((1, 3))),
        (None, "share", None),
    ]
    own = read_asked(["mine:Scheme@training.loss=a,b"])[0]
    assert (own.scheme, own.key, own.range) == ("mine:Scheme", "training.loss", OneOf(("a", "b")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("training.learning_rate", "write KEY=LOW:HIGH"),
        ("x=1:2:square", "write KEY=LOW:HIGH"),
        ("x=2:1", "the smaller one first"),
        ("training.learning_rat=0.1:1", "unknown key"),
        ("local_update=1:4", "did you mean `local_updates`"),
        ("fedpaq@levels=1:4", "fedpaq is not among the schemes"),
        ("local_updates=0:4", "greater than or equal to 1"),
        ("local_updates=1.5:4.5", "valid integer"),
        ("radio.noise_dbm=-90:-80", "the same for all schemes"),
    ],
)
def test_ranges_that_nothing_could_take_are_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        spaces_of(read_variants(TINY, ["local-sgd"]), read_asked([text]))


def test_a_search_has_the_schemes_ranges_and_those_that_were_asked_for() -> None:
    variants = read_variants(TINY, ["local-sgd@training.server_momentum=0.5", "clustered"])
    asked = read_asked(["local-sgd@local_updates=2,4", "clustered@training.learning_rate=none"])
    own, other = spaces_of(variants, asked)
    assert own == {
        "training.learning_rate": Between(0.003, 1.0, log=True), "local_updates": OneOf((2, 4)),
    }  # fmt: skip
    assert list(other) == ["training.server_momentum"]
    with pytest.raises(InputError, match="has a value of it already"):
        spaces_of(variants, read_asked(["training.server_momentum=0,1"]))
    with pytest.raises(InputError, match="nothing is left to tune"):
        spaces_of(
            read_variants(TINY, ["clustered"]),
            read_asked(["training.learning_rate=none", "training.server_momentum=none"]),
        )


def test_budgets_come_from_texts_numbers_or_the_configuration() -> None:
    assert read_budgets(["joules=5,seconds=2", "joules=9"], TINY) == [
        Budget("joules", 5.0), Budget("seconds", 2.0), Budget("joules", 9.0),
    ]  # fmt: skip
    assert read_budgets({"megabytes": 1}, TINY) == [Budget("megabytes", 1.0)]
    own = TINY.replace({"run.min_virtual_seconds": 3.0})
    assert read_budgets(None, own) == [Budget("seconds", 3.0)]
    for wrong in (["rounds=3"], ["joules=0"], ["joules"], ["joules=1", "joules=1"], None):
        with pytest.raises(InputError, match="--budget"):
            read_budgets(wrong, TINY)


def test_even_points_reach_every_value_of_a_range() -> None:
    places = np.linspace(0, 1, 1000, endpoint=False)
    found = [spread(SPACE, [share] * 3) for share in places]
    assert {one["n"] for one in found} == set(range(1, 10))
    counts = [sum(one["n"] == n for one in found) for n in range(1, 10)]
    assert max(counts) - min(counts) <= 1
    assert {one["m"] for one in found} == {0, 1}
    assert found[500]["x"] == pytest.approx(math.sqrt(0.001))
    assert tidy(SPACE, {"x": 0.0123456, "n": 3, "m": 0}) == {"x": 0.01235, "n": 3, "m": 0}
    assert tidy(SPACE, {"x": 0.00100000001, "n": 3, "m": 0})["x"] == 0.001


@pytest.mark.slow
def test_trials_of_a_group_do_not_depend_on_how_many_of_it_are_asked_for() -> None:
    before = sought(START, seed=1)
    three = proposals(SPACE, before, START, 3, ACCURACY, seed=1)
    assert proposals(SPACE, before, START, 2, ACCURACY, seed=1) == three[:2]
    assert proposals(SPACE, before, START, 1, ACCURACY, seed=2) != three[:1]
    assert len({json.dumps(one) for one in three}) == 3


@pytest.mark.slow
def test_the_search_finds_a_better_place_than_chance_does_with_more_trials() -> None:
    best = [max(one.scores[0][0] or 0.0 for one in sought(16, seed)) for seed in range(2)]
    generator = np.random.default_rng(3)
    chance = [
        max(bowl(spread(SPACE, generator.random(3).tolist())) for _ in range(32)) for _ in range(99)
    ]
    assert min(best) > np.mean(chance)


def test_a_trial_is_given_up_if_it_is_below_the_median_with_its_seeds_so_far() -> None:
    before = [a_trial(n, [score], [0.9]) for n, score in enumerate((0.1, 0.3, 0.5, 0.7))]
    median = float(np.median([0.1, 0.3, 0.5, 0.7]))
    for score in (0.0, 0.35, 0.45, 0.8):
        own = a_trial(4, [score])
        assert give_up(own, before, ACCURACY) == (score < median)
        assert give_up(own, before, LOSS) == (score > median)
        assert not give_up(own, before[:3], ACCURACY)  # too few to compare with
    assert give_up(a_trial(4, [None]), before, ACCURACY)
    assert not give_up(a_trial(4, [0.45], [0.9]), [*before, a_trial(5, [0.9], [0.1])], ACCURACY)


def test_with_several_budgets_a_trial_is_given_up_only_if_it_is_behind_at_all() -> None:
    before = [a_trial(n, [n / 10, 1 - n / 10]) for n in range(5)]
    assert not give_up(a_trial(5, [0.0, 0.95]), before, ACCURACY)
    assert give_up(a_trial(5, [0.1, 0.7]), before, ACCURACY)


def test_the_best_has_all_seeds_and_the_first_of_equals_wins() -> None:
    trials = [
        a_trial(0, [0.5], [0.7]), a_trial(1, [0.99], pruned=True), a_trial(2, [0.6], [0.6]),
        a_trial(3, [None], [1.0]),
    ]  # fmt: skip
    assert best_of(trials, ACCURACY).number == 0
    assert best_of(trials[1:], ACCURACY).number == 2
    assert best_of([a_trial(0, [0.5]), a_trial(1, [0.4]), a_trial(2, [None])], LOSS).number == 1


def test_the_front_has_every_trial_that_none_beats() -> None:
    rng = np.random.default_rng(0)
    trials = [a_trial(n, rng.integers(0, 6, 2).tolist()) for n in range(40)]
    found = {one.scores[0] for one in front_of(trials, ACCURACY)}
    every = {one.scores[0] for one in trials}
    wanted = {
        own for own in every
        if not any(o != own and o[0] >= own[0] and o[1] >= own[1] for o in every)
    }  # fmt: skip
    assert found == wanted
    assert front_of([a_trial(0, [None, 0.3])], ACCURACY) == ()


def test_tuning_seeds_are_never_those_of_reports() -> None:
    def plan(config: camu.Config = TINY, **given: Any) -> Any:
        return plans_of(config, ["local-sgd"], budgets=BUDGET, **given)[0]

    assert plan(seeds=2).seeds == (FIRST_SEED, FIRST_SEED + 1)
    assert plan(seeds=[1007]).seeds == (1007,)
    for wrong in ([3], [1000, 1000], [], [1000, 999]):
        with pytest.raises(InputError, match="different seeds from 1000 on"):
            plan(seeds=wrong)
    with pytest.raises(InputError, match="the seeds from 1000 on are for tuning"):
        plan(TINY.replace({"run.seed": 1000}))
    for key, value in (("run.max_joules", 5.0), ("run.target", 0.9), ("run.patience", 3)):
        with pytest.raises(InputError, match=f"unset it with --set {key}=none"):
            plan(TINY.replace({key: value}))


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'camu-fl\[tune\]'"):
        tune(TINY, "local-sgd", budget=BUDGET)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[camu.Tuned, Path]:
    """Ten trials of local-sgd with two seeds, and their directory."""
    out = tmp_path_factory.mktemp("tuned")
    return tune(TINY, "local-sgd", {"local_updates": (1, 6)}, BUDGET, 10, 2, out), out


@pytest.mark.slow
def test_the_first_trial_is_the_scheme_as_configured(found: tuple[camu.Tuned, Path]) -> None:
    tuned, _ = found
    assert tuned.untuned.settings == {
        "training.learning_rate": TINY.training.learning_rate,
        "training.server_momentum": 0.0,
        "local_updates": camu.schemes.LocalSgd().local_updates,
    }
    assert not tuned.untuned.pruned
    assert len(tuned.trials) == 10
    assert [one.number for one in tuned.trials] == list(range(10))
    assert tuned.best.value(ACCURACY) >= tuned.untuned.value(ACCURACY)


@pytest.mark.slow
def test_scores_are_those_of_runs_on_tuning_seeds_and_samples_held_back(
    found: tuple[camu.Tuned, Path],
) -> None:
    tuned, _ = found
    best = tuned.best
    for seed, row in zip(tuned.seeds, best.scores, strict=True):
        changes = {
            "training.learning_rate": best.settings["training.learning_rate"],
            "training.server_momentum": best.settings["training.server_momentum"],
            "scheme.name": "local-sgd",
            "scheme.parameters.local_updates": best.settings["local_updates"],
            "run.seed": seed, "run.rounds": 1, "run.eval_every": 1000, "run.min_joules": 4.0,
            "data.validation_share": 0.2,
        }  # fmt: skip
        config = TINY.replace(changes)
        world = camu.build_world(config)
        history = camu.simulate(world, camu.make_scheme(config)).history
        assert row == (history.score_within("joules", 4.0),)
        assert history.final.total_joules >= 4.0


@pytest.mark.slow
def test_the_result_is_a_configuration_for_reports(found: tuple[camu.Tuned, Path]) -> None:
    tuned, _ = found
    config = camu.Config.from_toml(tuned.config.to_toml())
    assert config == tuned.config
    assert (config.run.seed, config.data.validation_share) == (2, 0.0)
    assert config.run.eval_every == TINY.run.eval_every
    assert config.scheme.parameters == {"local_updates": tuned.settings["local_updates"]}
    [variant] = read_variants(TINY, [tuned.word])
    assert variant.config.scheme == config.scheme
    assert variant.config.training == config.training


@pytest.mark.slow
def test_a_search_that_goes_on_has_the_trials_of_one_that_was_not_interrupted(
    found: tuple[camu.Tuned, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops amid a group of trials; then it has fewer trials than in the end."""
    tuned, _ = found
    whole, count = scheduler.run_in_directory, itertools.count()

    def cut(*args: Any, **kwargs: Any) -> Any:
        if next(count) == 11:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(scheduler, "run_in_directory", cut)
    asked = (TINY, "local-sgd", {"local_updates": (1, 6)}, BUDGET)
    with pytest.raises(KeyboardInterrupt):
        tune(*asked, 7, 2, tmp_path)
    assert tune(*asked, 7, 2, tmp_path).trials == tuned.trials[:7]
    assert tune(*asked, 10, 2, tmp_path).trials == tuned.trials
    done = next(count)
    assert tune(*asked, 10, 2, tmp_path).trials == tuned.trials
    assert tune(*asked, 5, 2, tmp_path).trials == tuned.trials[:5]
    assert next(count) == done + 1  # nothing was trained again


@pytest.mark.slow
def test_damage_of_the_trials_on_disk_is_noticed(
    found: tuple[camu.Tuned, Path], tmp_path: Path
) -> None:
    tuned, out = found
    [journal] = (out / "searches").glob("*.jsonl")
    text = journal.read_bytes()

    def again() -> camu.Tuned:
        return tune(TINY, "local-sgd", {"local_updates": (1, 6)}, BUDGET, 10, 2, out)

    for place in range(10, len(text) - 1, len(text) // 40):
        journal.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        with pytest.raises(DamagedError, match=r"line \d+: is damaged or was changed; remove it"):
            again()
    lines = text.splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    with pytest.raises(DamagedError, match="line 4"):
        again()
    journal.write_bytes(text[:-9])  # as a kill amid the last line leaves it
    assert again().trials == tuned.trials
    journal.unlink()  # as the message says
    assert again().trials == tuned.trials


@pytest.mark.slow
def test_another_search_in_the_same_directory_says_what_changed(
    found: tuple[camu.Tuned, Path],
) -> None:
    _, out = found
    said: list[str] = []
    plans = plans_of(TINY, ["local-sgd"], read_asked(["local_updates=1:6"]), {"joules": 3.0}, 1, 1)
    search(plans, out, say=said.append)
    [sentence] = said
    assert "is not used; changed: budgets (was ['joules=4'], now ['joules=3'])" in sentence
    assert "run.min_joules (was 4.0, now 3.0)" in sentence


@pytest.mark.slow
def test_several_schemes_and_budgets_are_searched_together(tmp_path: Path) -> None:
    words = ["fedprox@proximal=0.1", "adaptive-tau"]
    budgets = {"joules": 3.0, "seconds": 0.5}
    plans = plans_of(TINY, words, budgets=budgets, trials=3, seeds=1)
    steps: list[tuple[int, int]] = []
    both = search(plans, tmp_path, progress=lambda what, done, total: steps.append((done, total)))
    assert steps[-1] == (6, 6)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    for tuned, word in zip(both, words, strict=True):
        assert tuned.word.startswith(word)
        assert all(len(row) == 2 for one in tuned.trials for row in one.scores)
        assert tuned.best.number in {one.number for one in tuned.trials}
        run = tuned.config.run
        assert (run.min_joules, run.min_virtual_seconds, run.min_megabytes) == (3.0, 0.5, None)
    assert "proximal" not in both[0].settings
    limit = both[1].config.run.max_joules  # adaptive-tau plans for it
    assert limit is not None
    assert limit >= 3.0
    alone = replace(plans[0], trials=3)
    assert search([alone], tmp_path / "alone")[0].trials == both[0].trials
