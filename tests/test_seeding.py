"""Randomness: same key same stream everywhere, different key different stream, no global state."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import camu
from camu.seeding import OWN_PURPOSE, PURPOSES, Stream, derive

KEYS = st.tuples(
    st.integers(0, 2**40),
    st.text(max_size=8).map(OWN_PURPOSE.__add__),
    st.lists(st.integers(0, 10**6), max_size=3),
)


def test_known_value_pins_the_rule() -> None:
    # Written down once: a change of the rule would silently change every published result.
    stream = derive(0, "noise", 1, 2)
    assert stream.entropy % 10**12 == 22950194388
    assert stream.numpy().integers(10**9) == 621134898
    branch = np.random.SeedSequence(stream.entropy, spawn_key=(3, 4))
    expected = np.random.Generator(np.random.PCG64(branch)).integers(10**9, size=5)
    assert stream.numpy(3, 4).integers(10**9, size=5).tolist() == expected.tolist()


def test_same_in_another_process_with_another_hash_seed() -> None:
    code = "from camu.seeding import derive; print(derive(7, 'own-x', 3).numpy().integers(2**60))"
    outs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outs == {f"{derive(7, 'own-x', 3).numpy().integers(2**60)}\n"}


@given(KEYS, KEYS)
def test_equal_streams_exactly_for_equal_keys(a: tuple, b: tuple) -> None:
    first, second = derive(a[0], a[1], *a[2]), derive(b[0], b[1], *b[2])
    assert (first == second) == (a == b)
    assert (first.numpy().integers(2**62) == second.numpy().integers(2**62)) == (a == b)
    draws = [torch.randint(2**62, (1,), generator=s.torch()).item() for s in (first, second)]
    assert (draws[0] == draws[1]) == (a == b)


@given(st.integers(0, 2**256 - 1) | st.integers(0, 2**40) | st.sampled_from([2**32, 2**224 - 1]))
def test_the_generator_is_the_one_that_numpy_makes_of_the_number(entropy: int) -> None:
    expected = np.random.PCG64(np.random.SeedSequence(entropy)).state
    assert Stream(entropy).numpy().bit_generator.state == expected


def test_separators_in_the_purpose_do_not_collide() -> None:
    assert derive(1, "own-a\x1f2") != derive(1, "own-a", 2)
    assert derive(11, "own-a") != derive(1, "own-1a")


def test_unknown_purposes_and_wrong_indices_are_refused() -> None:
    with pytest.raises(ValueError, match="'droput' is not in PURPOSES"):
        derive(0, "droput", 1)
    for indices in [(), (1, 2, 3, 4)]:
        with pytest.raises(
            ValueError, match=r"'dropout' takes indices \('round', 'device\?', 'step\?'\)"
        ):
            derive(0, "dropout", *indices)
    assert derive(0, "own-anything", *range(9)) != derive(0, "own-anything")


def test_every_purpose_in_the_package_is_in_the_table_with_its_indices() -> None:
    used: dict[tuple[str, int], set[str]] = {}
    for path in sorted(Path(camu.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "id", "")
            if name not in ("derive", "link_uniform", "link_normal"):
                continue
            where = f"{path.name}:{node.lineno}"
            if not isinstance(node.args[1], ast.Constant):
                assert path.name == "fading.py", where  # link draws pass their caller's purpose on
                assert ast.unparse(node.args[1]) == "purpose", where
                continue
            purpose = node.args[1].value
            if purpose.startswith(OWN_PURPOSE):
                continue  # streams for the user's own scheme
            indices = PURPOSES[purpose]
            given = node.args[2:] if name == "derive" else []
            used.setdefault((purpose, len(given)), set()).add(path.name)
            least = sum(not index.endswith("?") for index in indices)
            starred = sum(isinstance(index, ast.Starred) for index in given)
            assert least <= len(given) - starred, where
            assert len(given) <= len(indices), where
    assert {purpose for purpose, _ in used} == set(PURPOSES)
    # One key, one use: the same purpose with as many indices in two rooms is one stream for two
    # things. CPU frequencies are drawn for regions and for fleet files, a table is read from a
    # file or embedded; never both.
    twice = {key for key, rooms in used.items() if len(rooms) > 1}
    assert twice <= {("cpu", 0), ("table-split", 0)}


def test_no_global_random_state_in_the_package() -> None:
    """Nothing draws from or seeds a global generator (fencing global state off is allowed)."""
    forbidden = re.compile(
        # RandomState(0) is a generator of its own: it breaks ties as scikit-learn does. So is that
        # of a stream, which has the bits of torch's. Data and partitions of others have seeds too.
        r"np\.random\.(?!Generator|PCG64|SeedSequence|get_state|set_state"
        r"|RandomState\(0\)|RandomState\(self\.torch_seed|RandomState[:,]"
        r"|default_rng\(BENCH_SEED\))\w+"
        r"|(?<![\w.])random\.(?!getstate|setstate|get_state|set_state|fork_rng|Random\(seed\))\w+\("
        r"|from random import"
        r"|torch\.manual_seed|torch\.seed\(|torch\.cuda\.manual_seed"
        r"|torch\.rand(n|int|perm)?\((?![^)\n]*generator=)"
    )
    hits = []
    for path in sorted(Path(camu.__file__).parent.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if forbidden.search(line.split("#")[0]):
                hits.append(f"{path.name}:{number}: {line.strip()}")
    assert not hits, "\n".join(hits)
