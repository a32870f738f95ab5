"""Bad configurations: TOML, settings, options, the environment, and numbers at their limits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.config.words import section_keys
from torture.calls import EXAMPLES, Case, write


def _wrong_value(dice: random.Random, key: dict[str, Any]) -> str:
    """A value, written as TOML, that a key cannot have."""
    options = key.get("anyOf", [key])
    own = next(kind for kind in options if kind["type"] != "null")
    if own["type"] in ("integer", "number"):
        wrong = ['"x"', "true", "[1]", "{a = 1}", "nan", "1979-05-27", '""']
        if own["type"] == "integer":
            wrong += ["1.5", "9" * 30]
        for name, step in (("minimum", -1), ("exclusiveMinimum", 0)):
            if name in own:
                wrong += [repr(own[name] + step), "-1e300" if own["type"] == "number" else "-99"]
        for name, factor in (("maximum", 2), ("exclusiveMaximum", 1)):
            if name in own:
                wrong.append(repr(own[name] * factor + 1))
        return dice.choice(wrong)
    if own["type"] == "boolean":
        return dice.choice(["1", '"yes"', "[]", "0.0", "{}"])
    if own["type"] == "string":
        return dice.choice(
            ["5", "true", "[]", "{a = 1}", "1.5", *(['"nonsense"'] * ("enum" in own))]
        )
    if own["type"] == "array":
        return dice.choice(["3", '"x"', "[]", '["a", "b"]', "true", "[nan, nan]", "[[[]]]"])
    return dice.choice(["3", '"x"', "[1]"])


def _key(dice: random.Random) -> tuple[str, str, dict[str, Any]]:
    section = dice.choice(list(Config.model_fields))
    name, key = dice.choice(list(section_keys(Config, section).items()))
    return section, name, key


def toml_value(dice: random.Random, place: Path) -> Case:
    section, name, key = _key(dice)
    value = _wrong_value(dice, key)
    if dice.random() < 0.5:
        path = write(place / "a.toml", f"[{section}]\n{name} = {value}\n")
        return Case("TOML values", ["config", "show", "-c", str(path)], [f"{section}.{name}"])
    arguments = ["plan", "--json", "--set", f"{section}.{name}={value}"]
    return Case("--set", arguments, [f"{section}.{name}"])


def toml_text(dice: random.Random, place: Path) -> Case:
    deep = dice.randrange(700, 20_000)
    broken: list[str | bytes] = [
        "[run]\nrounds = " + "[" * deep + "]" * deep,
        "[run]\nrounds = " + "{a=" * deep + "1" + "}" * deep,
        f"[run]\nseed = {'7' * dice.randrange(4301, 9000)}",
        bytes(dice.randrange(128, 256) for _ in range(dice.randrange(1, 200))),
        b"[run]\nrounds = 3\n" + bytes(dice.randrange(1, 50)),
        "[run\nrounds = 3",
        "[run]\nrounds = 3\nrounds = 4",
        "[run]\n[run]",
        "rounds = 3",
        "run = 3",
        'extends = "nothing"\n',
        "extends = 7\n",
        f"[{'x' * dice.randrange(1, 5000)}]\na = 1",
        f"[run]\n{'roundz' * dice.randrange(1, 500)} = 1",
        "[run]\nseed = " + "\x1b[2J" * dice.randrange(1, 9),
        '[fleet]\nfile = "a\\u0000b"\n',
        f'[fleet]\nfile = "{"n" * dice.randrange(300, 9000)}"\n',
    ]
    path = write(place / "a.toml", dice.choice(broken))
    return Case(
        "TOML text", ["plan", "-c", str(path)], [str(path), "fleet.file", "no file can", "nnn"]
    )


def setting(dice: random.Random, place: Path) -> Case:
    deep = dice.randrange(700, 5000)
    wrong = [
        "run.rounds", "=3", "run=3", ".=", "a.b=c", "run.=3", "run.roundz=3", "run.rounds=",
        "run.rounds=" + "[" * deep + "]" * deep,
        "run.rounds=" + "x" * dice.randrange(10_001, 50_000),
        f"run.seed={'9' * dice.randrange(4301, 9000)}",
        "run.rounds={a=1}", "data.dataset={a=1}", "run={rounds=1}", "scheme.parameters=3",
        "scheme.parameters.x=[1]", "scheme.parameters.nothing=3", "run.target=nan",
        "data.dataset=\udcff", "fleet.file=\udcff\udcfe", "run.rounds=\x1b[31m3",
        "scheme.name=\x07",
        "scheme.name=./nothing.py:X", "scheme.name=nothing:X", "scheme.name=:",
        "training.model=a:b",
        "data.partition=os:getcwd", "radio.path_loss=os:sep", "scheme.name=json:JSONEncoder",
    ]  # fmt: skip
    return Case(
        "--set",
        ["plan", "--set", dice.choice(wrong)],
        ["--set", "scheme", "training.model", "data.", "radio.", "fleet.file", "parameters"],
    )


def option(dice: random.Random, place: Path) -> Case:
    taken = write(place / "file", "x")
    long = str(place / ("n" * 300))
    wrong: list[tuple[list[str], list[str]]] = [
        (["run", "--out", long], ["nnn"]),
        (["run", "--out", str(taken)], [str(taken)]),
        (["run", "--out", str(taken / "below")], [str(taken)]),
        (["run", "--out", str(place / "a\udcffb")], ["UTF-8"]),
        (["run", "--out", "/proc/nothing"], ["/proc"]),
        (["run", "--resume", "--out", str(place / "nothing")], ["nothing"]),
        (["compare", "--schemes", "", "--out", str(place / "c")], ["--schemes"]),
        (["compare", "--schemes", "fedavg,fedavg", "--out", str(place / "c")], ["--schemes"]),
        (["compare", "--schemes", "fedavg,nothing", "--out", str(place / "c")], ["nothing"]),
        (["compare", "--seeds", "0"], ["--seeds"]),
        (["compare", "--target", "2"], ["--target"]),
        (["compare", "--schemes", "fedavg", "--out", str(taken)], [str(taken)]),
        (["reproduce", "theory", "--quick", "--out", str(taken)], [str(taken)]),
        (["reproduce", "nothing"], ["nothing"]),
        (["reproduce", "--dataset", "nothing"], ["nothing"]),
        (["reproduce", "--seeds", "1"], ["--seeds"]),
        (["demo", "--out", str(taken)], [str(taken)]),
        (["plan", "--seed", "-1"], ["--seed"]),
        (["plan", "--seed", "9" * 25], ["seed"]),
        (["plan", "--scheme", "nothing"], ["nothing"]),
        (["plan", "--preset", "nothing"], ["nothing"]),
        (["plan", "--figure", str(place / "a.doc")], ["a.doc"]),
        (["plan", "--figure", str(taken / "a.svg")], ["a.svg"]),
        (["plan", "--problem", str(taken / "a.json")], ["a.json"]),
        (["plan", "--snr", str(taken)], ["--snr"]),
        (["allocate", str(EXAMPLES / "problem.json"), "--solver", "nothing"], ["nothing"]),
        (["allocate", str(EXAMPLES / "problem.json"), "--figure", str(place / "x.y")], ["x.y"]),
        (["export", str(place), "--to", str(place / "a.pt2")], [str(place)]),
        (["export", str(place), "--to", str(place / "a.doc")], ["a.doc"]),
        (["data", "fetch", "nothing"], ["nothing"]),
        (["report", str(place / "nothing")], ["nothing"]),
        (["config", "keys", "nothing"], ["nothing"]),
        (["compare", "--schemes", "fedavg@nothing=3"], ["nothing"]),
        (["compare", "--schemes", "camu@threshold="], ["threshold"]),
        (["forecast", "--target", "1.5"], ["--target"]),
        (["forecast", "--target", "0.5", "--schemes", "nothing"], ["nothing"]),
        (["live", "--follow", str(place / "nothing"), "--no-browser"], ["nothing"]),
        (["live", "--port", "70000"], ["--port"]),
        (["bench", "--workloads", "nothing"], ["nothing"]),
        (["allocate", str(EXAMPLES / "problem.json"), "--sweep", "energy=a"], ["--sweep"]),
        (["allocate", str(EXAMPLES / "problem.json"), "--sweep", "energy=1:2:0"], ["--sweep"]),
        (["allocate", str(EXAMPLES / "problem.json"), "--sweep", "energy=nan"], ["--sweep"]),
        (["allocate", "--from-plan", str(taken)], [str(taken)]),
        (["fleet", "import", str(taken), "--out", long, "--samples", "0"], ["--samples"]),
        (["nothing"], ["nothing"]),
        (["plan", "--nothing"], ["--nothing"]),
    ]  # fmt: skip
    arguments, names = dice.choice(wrong)
    return Case("options", arguments, names)


def environment(dice: random.Random, place: Path) -> Case:
    taken = write(place / "file", "x")
    value = dice.choice(
        [str(taken), str(taken / "below"), "/proc/nothing", "/dev/null", "n" * 5000]
    )
    arguments = ["data", "fetch", dice.choice(["mnist", "fashion-mnist"])]
    return Case("environment", arguments, [value[:80], "CAMU_DATA"], {"CAMU_DATA": value})


# Keys that only say how much there is; at their limits they mean work of hours, not mistakes.
SIZES = (
    "machine.workers",
    "run.rounds",
    "fleet.devices",
    "data.samples_per_device",
)


def extreme(dice: random.Random, place: Path) -> Case:
    """One or two numbers at the end of what their keys allow: finite results, or a refusal."""
    arguments, names = ["plan", "--json"], []
    arguments += ["--preset", dice.choice(["demo", "paper", "literal", "battery"])]
    arguments += ["--scheme", dice.choice(["camu", "fedavg", "camu-joint", "clustered"])]
    while len(names) < dice.choice([1, 1, 2]):
        section, name, key = _key(dice)
        value = _extreme_value(dice, key)
        if value is None or f"{section}.{name}" in SIZES:
            continue
        names.append(f"{section}.{name}")
        arguments += ["--set", f"{section}.{name}={value}"]
    return Case("extreme numbers", arguments, [*names, "devices", "energy_joules"], may_work=True)


def _extreme_value(dice: random.Random, key: dict[str, Any]) -> str | None:
    """A number at the end of its range, as TOML; None for other keys."""
    own = next(kind for kind in key.get("anyOf", [key]) if kind["type"] != "null")
    if own["type"] not in ("integer", "number"):
        return None
    least = own.get("minimum", own.get("exclusiveMinimum"))
    most = own.get("maximum", own.get("exclusiveMaximum"))
    if own["type"] == "integer":
        ends = [least, most, 2**63, 2**63 - 1, 10**30]
    else:
        ends = [least, most, 5e-324, 1e-300, 1e-30, 1e12, 1e30, 1e200, 1e308, -1e308]
    return repr(dice.choice([end for end in ends if end is not None]))


def deployment(dice: random.Random, place: Path) -> Case:
    """Options of `camu deploy` that nothing can be started with."""
    taken = write(place / "file", "x")
    missing = str(place / "missing.pub")
    node = ["deploy", "node", "--superlink", "127.0.0.1:9", "--insecure"]
    wrong: list[tuple[list[str], list[str]]] = [
        *((["deploy", "keys", str(place / "keys"), "--host", host], ["host"])
          for host in ("a b", "a/b", "a\nb", "", "-", "x" * 300, "\x1b[31m", "a..b")),
        (["deploy", "keys", str(taken), "--nodes", "1"], [str(taken)]),
        (["deploy", "keys", str(place / "keys"), "--nodes", "0"], ["--nodes"]),
        (["deploy", "superlink", "--port", "99999", "--insecure"], ["--port"]),
        (["deploy", "superlink"], ["--keys"]),
        (["deploy", "superlink", "--keys", str(place / "nothing")], ["nothing"]),
        (["deploy", "register", missing, "--ca", missing], [missing]),
        ([*node, "--partition", "3/2"], ["--partition"]),
        ([*node, "--partition", "a/b"], ["--partition"]),
        ([*node, "--partition", "\u00b2/3"], ["--partition"]),
        (["deploy", "node", "--superlink", "nowhere", "--partition", "0/1"], ["--ca", "--key"]),
        (["deploy", "run", "--superlink", "nowhere", "--insecure", "--out", str(place / "r")],
         ["nowhere"]),
        (["deploy", "local", "--nodes", "0"], ["--nodes"]),
        (["deploy", "local", "--out", str(taken)], [str(taken)]),
        (["deploy", "local", "--scheme", "adaptive-tau"], ["adaptive-tau"]),
        (["deploy", "app", str(taken), "--nodes", "2"], [str(taken)]),
    ]  # fmt: skip
    arguments, names = dice.choice(wrong)
    return Case("deployment", arguments, names)
