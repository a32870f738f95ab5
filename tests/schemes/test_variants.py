"""The schemes of a comparison as users write them: names, families, variants, and refusals."""

from __future__ import annotations

import pytest

from camu.cli.options import resolve
from camu.config import load_config
from camu.errors import InputError
from camu.schemes import FAMILIES, SCHEMES, Camu, make_scheme
from camu.schemes.variants import keys_of, label_of, read_variants, split_schemes, word_of

CONFIG = load_config(preset="demo")


def test_all_is_every_scheme_by_family_with_fedavg_first() -> None:
    found = read_variants(CONFIG, ["all"])
    assert {variant.name for variant in found} == set(SCHEMES)
    assert len(found) == len(SCHEMES)
    assert found[0].label == "fedsgd"
    places = [list(FAMILIES).index(variant.family) for variant in found]
    assert places == sorted(places)


def test_a_family_leaves_out_what_has_a_word_of_its_own() -> None:
    found = [
        variant.label for variant in read_variants(CONFIG, ["feddyn", "drift", "local-updates"])
    ]
    assert found[0] == "feddyn"
    assert found.count("feddyn") == 1
    families = {SCHEMES[name].family for name in found}
    assert families == {"drift", "local updates"}
    assert [variant.label for variant in read_variants(CONFIG, ["camu"])] == ["camu"]


def test_variants_have_labels_and_parameters_of_their_own() -> None:
    text = "camu@threshold_quantile=0.3, camu@threshold_quantile=0.7@max_extra_updates=2,"
    words = split_schemes(text + "fedsa@first=2, fedsgd@aggregation=median, camu@threshold=inf")
    found = {variant.label: variant.config for variant in read_variants(CONFIG, words)}
    assert list(found) == [
        "camu threshold_quantile=0.3",
        "camu threshold_quantile=0.7 max_extra_updates=2",
        "fedsa first=2",
        "fedsgd aggregation=median",
        "camu threshold=inf",
    ]
    schemes = [make_scheme(config) for config in found.values()]
    assert schemes[0] == Camu(threshold_quantile=0.3)
    assert schemes[1] == Camu(threshold_quantile=0.7, max_extra_updates=2)
    assert found["fedsa first=2"].scheme.parameters == {"first": 2}
    assert found["fedsgd aggregation=median"].scheme.aggregation == "median"
    assert schemes[4].threshold == float("inf")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "at least one scheme"),
        (["fedavgg"], "did you mean `fedavg`"),
        (["camu", "camu"], "camu is given twice"),
        (["camu@threshold=1", "camu@threshold=1"], "given twice"),
        (["camu@quantile=0.3"], "camu has no such parameter"),
        (["fedsgd@threshold_quantile=0.3"], "fedsgd has no such parameter"),
        (["camu@threshold_quantile"], "write name@parameter=value"),
        (["camu@threshold_quantile=7"], "threshold_quantile"),
        (["fedsa@first=abc"], "first"),
        (["drift@local_updates=3"], "parameters go with one scheme"),
        (["fedsgd@radio.noise_dbm=-90"], "the same for all schemes"),
        (["fedsgd@training.model=logistic"], "the same for all schemes"),
        (["fedsgd@training.metrics=loss"], "the same for all schemes"),
        (
            ["fedsgd@training.learning_rat=1"],
            "--schemes fedsgd@training.learning_rat=1: unknown key",
        ),
        (["fedsgd@training.learning_rate=0"], "learning_rate"),
    ],
)
def test_wrong_words_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_variants(CONFIG, words)


def test_a_scheme_has_keys_of_the_configuration_for_itself() -> None:
    words = [
        "local-sgd@training.learning_rate=0.3@local_updates=8",
        "fedsgd@training.batch_samples=7@fleet.dvfs=true",
        "camu@clustering.leader=best-uplink",
    ]
    sgd, fedsgd, camu = (variant.config for variant in read_variants(CONFIG, words))
    assert (sgd.training.learning_rate, sgd.scheme.parameters) == (0.3, {"local_updates": 8})
    assert (fedsgd.training.batch_samples, fedsgd.training.batch_fraction) == (7, None)
    assert fedsgd.fleet.dvfs
    assert camu.clustering.leader == "best-uplink"
    assert camu.training == CONFIG.training


def test_words_are_written_as_they_are_read() -> None:
    given = {"local_updates": 3, "training.learning_rate": 0.1, "fleet.dvfs": True}
    word = word_of("local-sgd", given)
    assert word == "local-sgd@local_updates=3@training.learning_rate=0.1@fleet.dvfs=true"
    variant = read_variants(CONFIG, [word])[0]
    assert variant.label == label_of("local-sgd", given)
    assert variant.config == CONFIG.replace(keys_of("local-sgd", given))


def test_the_option_scheme_takes_parameters() -> None:
    config = resolve(None, "demo", None, scheme="fedprox@proximal=1.0@training.learning_rate=0.2")
    assert (config.scheme.name, config.scheme.parameters) == ("fedprox", {"proximal": 1.0})
    assert config.training.learning_rate == 0.2
    with pytest.raises(InputError, match="parameters go with one scheme"):
        resolve(None, "demo", None, scheme="drift@local_updates=3")
