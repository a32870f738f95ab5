"""Own schemes, models, data sets and solvers that raise, exit, print or answer nonsense."""

from __future__ import annotations

import random
from pathlib import Path

from torture.calls import EXAMPLES, Case, write

# What the user's function does in place of its work.
DEEDS = (
    "1 / 0",
    "raise ValueError('a\\nb')",
    "raise KeyError",
    "raise OSError(28, 'No space left on device')",
    "raise MemoryError",
    "raise RecursionError",
    "raise StopIteration",
    "raise EOFError",
    "import sys; sys.exit()",
    "import sys; sys.exit(0)",
    "import sys; sys.exit('bye')",
    "raise SystemExit(7)",
    "assert False",
    "return None",
    "return 3",
    "return {}",
    "return 'text'",
    "return float('nan')",
    "return [object()]",
    "print('hello'); return None",
    "import os; os.write(1, b''); return ()",
    "nothing",
    "import nothing",
)
HEAD = "import camu\nimport torch\n"
SCHEME = HEAD + "class Mine(camu.Scheme):\n    def plan(self, world):\n        {deed}\n"
BUILT = (
    "class Mine(camu.Scheme):\n    def plan(self, world):\n"
    "        groups = camu.single_devices(world)\n"
    "        n = len(groups)\n        return {answer}\n"
)
ANSWERS = (
    "camu.make_plan(self, groups, [1 / n] * (n - 1))",
    "camu.make_plan(self, groups, [float('nan')] * n)",
    "camu.make_plan(self, groups, [1.0] * n)",
    "camu.make_plan(self, groups, [-1 / n] * n)",
    "camu.make_plan(self, groups, [1 / n] * n, 0)",
    "camu.make_plan(self, groups, [1 / n] * n, 2**70)",
    "camu.make_plan(self, groups, [1 / n] * n, 'two')",
    "camu.make_plan(self, groups, 'weights')",
    "camu.make_plan(self, None, [1.0])",
    "camu.make_plan(self)",
)
MODEL = (
    HEAD
    + "class Mine(torch.nn.Module):\n"
    + "    def __init__(self, image_shape, classes):\n        {deed}\n"
)
DATA = HEAD + "def Mine():\n    {deed}\n"
SOLVER = HEAD + "def Mine(problem, **rest):\n    {deed}\n"


# What each of a scheme's other methods may not answer; every deed above is wrong in all of them.
HOOKS = {
    "pilot(self, pilot, state)": ["3", "{}", "pilot.plan.with_updates([0] * 99)"],
    "select(self, view, state)": ["3", "[99]", "[-1]", "['a']", "[1.5]", "None"],
    "start(self, view, state, unit)": ["3", "view.weights.parameters", "'x'"],
    "correction(self, view, state, unit)": ["view.weights.parameters[:3]", "'x'", "[[1], [1, 2]]"],
    "deadline(self, view, state)": ["'x'", "float('nan')", "[]", "-1.0"],
    "ready(self, view, state)": ["'x'", "[]", "3.5", "view.weights.parameters > 0"],
    "aggregate(self, view, state)": [
        "None", "3", "view.weights.parameters",
        "view.weights.with_parameters(view.weights.parameters * float('nan'))",
        "view.weights.with_parameters(view.weights.parameters[:5])",
    ],
    "revise(self, view, state)": ["3", "{}", "view.plan.with_updates([0])"],
    "finished(self, view, state)": ["'x'", "[]", "None"],
}  # fmt: skip
RAISES = tuple(deed for deed in DEEDS if "return" not in deed)


def own_hook(dice: random.Random, place: Path) -> Case:
    """A scheme that goes wrong in the middle of a run."""
    path = place / "mine.py"
    head = dice.choice(list(HOOKS))
    deed = dice.choice([f"return {dice.choice(HOOKS[head])}", dice.choice(RAISES)])
    write(path, f"{HEAD}class Mine(camu.schemes.FedAvg):\n    def {head}:\n        {deed}\n")
    short = ["--preset", "demo", "--set", "run.rounds=2", "--set", "training.model=logistic"]
    arguments = ["run", "--json", *short, "--scheme", f"{path}:Mine", "--out", str(place / "run")]
    return Case("own code", arguments, [str(path), "mine.py", "Mine"])


def own_code(dice: random.Random, place: Path) -> Case:
    """A file of the user's that goes wrong, and a command that uses it."""
    path = place / "mine.py"
    named = f"{path}:Mine"
    kind = dice.choice(["scheme", "scheme", "answer", "model", "data", "solver", "import"])
    deed = dice.choice(DEEDS)
    base = ["plan", "--json", "--preset", "demo"]
    if kind == "scheme":
        write(path, SCHEME.format(deed=deed))
        arguments = [*base, "--scheme", named]
    elif kind == "answer":
        write(path, HEAD + BUILT.format(answer=dice.choice(ANSWERS)))
        arguments = [*base, "--scheme", named]
    elif kind == "model":
        write(path, MODEL.format(deed=deed))
        arguments = [*base, "--set", f"training.model={named}"]
    elif kind == "data":
        write(path, DATA.format(deed=deed))
        arguments = [*base, "--set", f"data.dataset={named}"]
    elif kind == "solver":
        write(path, SOLVER.format(deed=deed))
        arguments = ["allocate", "--json", str(EXAMPLES / "problem.json"), "--solver", named]
    else:
        write(path, deed.replace("return", "raise ValueError #") + "\nclass Mine: pass\n")
        arguments = [*base, "--scheme", named]
    return Case("own code", arguments, [str(path), "mine.py", "Mine"])
