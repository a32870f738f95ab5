"""Randomness: same key same stream everywhere, different key different stream, no global state."""

import re
import subprocess
import sys
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

import camu
from camu.seeding import derive

KEYS = st.tuples(
    st.integers(0, 2**40), st.text(max_size=8), st.lists(st.integers(0, 10**6), max_size=3)
)


def test_known_value_pins_the_rule() -> None:
    # Written down once: a change of the rule would silently change every published result.
    assert derive(0, "batch", 1, 2).entropy % 10**12 == 662528168668
    assert derive(0, "batch", 1, 2).numpy().integers(10**9) == 57843925


def test_same_in_another_process_with_another_hash_seed() -> None:
    code = "from camu.seeding import derive; print(derive(7, 'x', 3).numpy().integers(2**60))"
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
    assert outs == {f"{derive(7, 'x', 3).numpy().integers(2**60)}\n"}


@given(KEYS, KEYS)
def test_equal_streams_exactly_for_equal_keys(a: tuple, b: tuple) -> None:
    first, second = derive(a[0], a[1], *a[2]), derive(b[0], b[1], *b[2])
    assert (first == second) == (a == b)
    assert (first.numpy().integers(2**62) == second.numpy().integers(2**62)) == (a == b)
    draws = [torch.randint(2**62, (1,), generator=s.torch()).item() for s in (first, second)]
    assert (draws[0] == draws[1]) == (a == b)


def test_separators_in_the_purpose_do_not_collide() -> None:
    assert derive(1, "a\x1f2") != derive(1, "a", 2)
    assert derive(11, "a") != derive(1, "1a")


def test_no_global_random_state_in_the_package() -> None:
    """Nothing draws from or seeds a global generator (fencing global state off is allowed)."""
    forbidden = re.compile(
        r"np\.random\.(?!Generator|PCG64|SeedSequence|get_state|set_state)\w+"
        r"|(?<![\w.])random\.(?!getstate|setstate|get_state|set_state|fork_rng)\w+\("
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
