"""Bad inputs of every format, drawn from a seed; each is wrong by construction."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.config.keys import section_keys
from torture.calls import Case, write
from torture.own_code import own_code

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TINY = """[data]
samples_per_device = 20
dataset = "digits"
[training]
model = "logistic"
[run]
rounds = 4
checkpoint_every = 2
workers = 1
[[fleet.regions]]
name = "I"
devices = 4
x = [-10.0, 0.0]
y = [-5.0, 5.0]
"""
Maker = Callable[[random.Random, Path], Case]


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


def odd_file(dice: random.Random, place: Path) -> Case:
    """Things in the file system that are no readable file."""
    kind = dice.choice(["fifo", "directory", "missing", "sparse", "zero", "loop", "long", "tty"])
    path = place / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 20_000_000_000)
    elif kind == "zero":
        path = Path("/dev/zero")
    elif kind == "tty":
        path = Path("/dev/random")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "long":
        path = place / ("n" * 300)
    options = {
        "config": ["config", "show", "-c", str(path)],
        "fleet": ["plan", "--fleet", str(path)],
        "snr": ["plan", "--fleet", str(EXAMPLES / "fleet.csv"), "--snr", str(path)],
        "problem": ["allocate", str(path)],
        "trace": ["run", "--out", str(place / "run"), "--set", f"fleet.dropout_trace={path}"],
        "report": ["report", str(path)],
        "export": ["export", str(path), "--to", str(place / "model.pt2")],
        "data": [
            "run",
            "--out",
            str(place / "run"),
            "--preset",
            "study",
            "--set",
            f"data.directory={path}",
        ],
    }
    name = dice.choice(list(options))
    if kind == "directory" and name == "data":
        write(path / "train-images-idx3-ubyte.gz", b"\x1f\x8b" + bytes(20))
    return Case("odd files", options[name], [str(path), path.name[:80]])


def setting(dice: random.Random, place: Path) -> Case:
    deep = dice.randrange(700, 5000)
    wrong = [
        "run.rounds", "=3", "run=3", ".=", "a.b=c", "run.=3", "run.roundz=3", "run.rounds=",
        "run.rounds=" + "[" * deep + "]" * deep,
        "run.rounds=" + "x" * dice.randrange(10_001, 50_000),
        f"run.seed={'9' * dice.randrange(4301, 9000)}",
        "run.rounds={a=1}", "data.dataset={a=1}", "run={rounds=1}", "scheme.parameters=3",
        "scheme.parameters.x=[1]", "scheme.parameters.nothing=3", "run.target_accuracy=nan",
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
        (["nothing"], ["nothing"]),
        (["plan", "--nothing"], ["--nothing"]),
    ]  # fmt: skip
    arguments, names = dice.choice(wrong)
    return Case("options", arguments, names)


def _fleet_rows() -> list[list[str]]:
    return [line.split(",") for line in (EXAMPLES / "fleet.csv").read_text().splitlines()]


BAD_CELLS = {
    "id": ["", "gate-2", "a\x1b[2J", "a\0b", "x" * 300, "\u202egate"],
    "x": ["east", "nan", "inf", "1e308", "-1e8", "1e400", "0x1", "1,5", "--"],
    "z": ["nan", "high", "1e9"],
    "label_0": ["-1", "1.5", "", "many", "1e300", "inf"],
    "cpu_hz": ["0", "-1", "fast", "1e300", "5e-324", "nan", "inf"],
    "max_power_watts": ["0", "-1", "1e300", "5e-324", "nan", "much"],
    "battery_joules": ["-1", "full", "nan", "1e301"],
    "region": ["\x07", "a\x1b[31m", "r" * 500],
}


def fleet(dice: random.Random, place: Path) -> Case:
    rows = _fleet_rows()
    header = rows[0]
    kind = dice.choice(["cell", "cell", "cell", "column", "header", "row", "text", "json", "json"])
    path = place / "fleet.csv"
    if kind == "json":
        path = place / "fleet.json"
        text = _fleet_json(dice, rows)
        write(path, text)
        return Case("fleets", ["plan", "--json", "--fleet", str(path)], [str(path)])
    if kind == "cell":
        column = dice.choice(list(BAD_CELLS))
        value = dice.choice(BAD_CELLS[column])
        number = dice.randrange(3, len(rows))
        rows[number][header.index(column)] = f'"{value}"' if "," in value else value
    elif kind == "column":
        gone = header.index(dice.choice(["id", "x", "y", "label_3"]))
        rows = [row[:gone] + row[gone + 1 :] for row in rows]
    elif kind == "header":
        header[dice.randrange(1, len(header))] = dice.choice(["id", ""])
    elif kind == "row":
        number = dice.randrange(1, len(rows))
        rows[number] = rows[number][: dice.randrange(1, 9)]
    lines = "\n".join(",".join(row) for row in rows)
    content: str | bytes = lines
    if kind == "text":
        content = dice.choice(
            ["", "\n\n", ",".join(header), lines.replace(",", ";"), lines.encode("utf-16"),
             b"\xff\xfe" + lines.encode(), lines.replace("gate-1", '"gate-1'), bytes(100)]
        )  # fmt: skip
    write(path, content)
    return Case("fleets", ["plan", "--json", "--fleet", str(path)], [str(path)])


def _fleet_json(dice: random.Random, rows: list[list[str]]) -> str:
    items: list[Any] = [
        {"id": f"d{n}", "x": n, "y": -n, "label_0": 5, "label_1": 9} for n in range(6)
    ]
    column = dice.choice(["id", "x", "y", "label_0"])
    wrong: list[Any] = [[], {}, True, "", float("nan"), float("inf"), -1e300, {"a": 1}]
    if column == "id":
        wrong = [[], {}, True, "", "d1", None, "a\x1b", "\ud800"]
    items[dice.randrange(2, 6)][column] = dice.choice(wrong)
    whole = json.dumps(items)
    deep = dice.randrange(1000, 50_000)
    texts = [whole] * 6 + [
        "", "{}", "[]", "3", "[3]", "null", whole[:-1], whole[: len(whole) // 2],
        "[" * deep + "]" * deep, f'[{{"id": {"1" * 5000}}}]', '[{"id": "a", "id": "b"}]',
    ]  # fmt: skip
    return dice.choice(texts)


def snr(dice: random.Random, place: Path) -> Case:
    count = len(_fleet_rows()) - 1
    matrix = [["20"] * count for _ in range(count)]
    one, other = dice.sample(range(count), 2)
    kind = dice.choice(["cell", "size", "rows", "asymmetric", "text"])
    if kind == "cell":
        matrix[one][other] = dice.choice(["", "nan", "inf", "loud", "1e9", "-1e9"])
    elif kind == "size":
        matrix = [row[:-1] for row in matrix]
    elif kind == "rows":
        matrix = matrix[: dice.randrange(count)]
    elif kind == "asymmetric":
        matrix[one][other] = "21"
    text = "\n".join(",".join(row) for row in matrix)
    path = write(
        place / "snr.csv",
        text if kind != "text" else dice.choice(["", "\0", text.replace("\n", "\n;", 1)]),
    )
    fleet = str(EXAMPLES / "fleet.csv")
    return Case("SNR", ["plan", "--fleet", fleet, "--snr", str(path)], [str(path)])


def problem(dice: random.Random, place: Path) -> Case:
    document = json.loads((EXAMPLES / "problem.json").read_text())
    cluster = dice.choice(document["clusters"])
    where = dice.choice([document, cluster, cluster])
    required = [k for k in where if k not in ("penalty", "compute_seconds", "max_power_watts",
                "max_total_power_watts", "power_law", "first_update_free")]  # fmt: skip
    name = dice.choice(required)
    kind = dice.choice(["value", "value", "value", "missing", "unknown", "text"])
    path = place / "problem.json"
    if kind == "value":
        wrong = ["x", None, [], {}, float("nan"), float("inf"), 1e308, 10**400]
        wrong += [-1.0] * (name != "descent") + [True] * (name != "multi_update")
        where[name] = dice.choice(wrong)
        if name == "clusters" and where[name] == []:
            where[name] = {}
    elif kind == "missing":
        del where[name]
    elif kind == "unknown":
        where[name + "s"] = 1
    text = json.dumps(document)
    if kind == "text":
        deep = dice.randrange(1000, 90_000)
        text = dice.choice(
            ["", "[]", "3", text[:-2], "[" * deep, '{"clusters": ' + "[" * deep, "{" + text[1:] * 2]
        )
    write(path, text)
    return Case("PROBLEM.json", ["allocate", "--json", str(path)], [str(path), name])


def trace(dice: random.Random, place: Path) -> Case:
    text = dice.choice([
        "", "round\n1\n", "round,device\n0,d0\n", "round,device\n1,nobody\n", "device,round\n",
        "round,device\n1\n", "round,device\n-3,d0\n", "round,device\n" + "9" * 5000 + ",d0\n",
        "round,device\n²,d0\n", 'round,device\n1,"d0\n\0', "round,device\nx,y,z\n",
    ])  # fmt: skip
    path = write(place / "trace.csv", text)
    out = str(place / "run")
    return Case(
        "traces",
        ["run", "--preset", "demo", "--set", f"fleet.dropout_trace={path}", "--out", out],
        [str(path)],
    )


def data(dice: random.Random, place: Path) -> Case:
    folder = place / "data"
    folder.mkdir()
    name = "train-images-idx3-ubyte"
    packed = bytearray(gzip.compress(bytes(dice.randrange(256) for _ in range(5000))))
    kind = dice.choice(["none", "plain", "gzip", "flipped", "cut", "fifo", "sparse", "folder"])
    if kind == "plain":
        write(folder / name, bytes(1000))
    elif kind == "gzip":
        write(folder / f"{name}.gz", bytes(packed))
    elif kind == "flipped":
        packed[dice.randrange(10, len(packed))] ^= 1 << dice.randrange(8)
        write(folder / f"{name}.gz", bytes(packed))
    elif kind == "cut":
        write(folder / f"{name}.gz", bytes(packed[: dice.randrange(len(packed))]))
    elif kind == "fifo":
        os.mkfifo(folder / dice.choice([name, f"{name}.gz"]))
    elif kind == "sparse":
        (folder / dice.choice([name, f"{name}.gz"])).touch()
        os.truncate(next(folder.iterdir()), 20_000_000_000)
    elif kind == "folder":
        (folder / name).mkdir()
    dataset = dice.choice(["mnist", "fashion-mnist"])
    settings = ["--set", f"data.dataset={dataset}", "--set", f"data.directory={folder}"]
    out = str(place / "run")
    return Case("data directories", ["run", *settings, "--out", out], [str(folder)])


def run_directory(dice: random.Random, place: Path, whole: Path) -> Case:
    """A finished run with one file damaged."""
    copied = place / "run"
    shutil.copytree(whole, copied)
    names = [
        "config.toml",
        "plan.json",
        "manifest.json",
        "rounds.jsonl",
        "summary.json",
        "model.safetensors",
    ]
    path = copied / dice.choice(names)
    content = bytearray(path.read_bytes())
    kind = dice.choice(["flip", "zeros", "cut", "empty", "foreign", "fifo", "folder"])
    if kind == "flip":
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    elif kind == "zeros":
        count = dice.randrange(1, len(content))
        content[-count:] = bytes(count)
    elif kind == "cut":
        content = content[: dice.randrange(1, len(content) - 1)]
    elif kind == "empty":
        content = bytearray()
    elif kind == "foreign":
        content = bytearray(dice.choice([b"{}", b"[]\n", b"null", b"PK\3\4", b"\xff" * 64, b"3\n"]))
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(content)
    commands = [["report", str(copied)], ["run", "--resume", "--out", str(copied)]]
    return Case("run directories", dice.choice(commands), [str(copied)])


def environment(dice: random.Random, place: Path) -> Case:
    taken = write(place / "file", "x")
    value = dice.choice(
        [str(taken), str(taken / "below"), "/proc/nothing", "/dev/null", "n" * 5000]
    )
    arguments = ["data", "fetch", dice.choice(["mnist", "fashion-mnist"])]
    return Case("environment", arguments, [value[:80], "CAMU_DATA"], {"CAMU_DATA": value})


MAKERS: tuple[tuple[Maker, int], ...] = (
    (toml_value, 25), (toml_text, 7), (odd_file, 7), (setting, 6), (option, 8), (fleet, 13),
    (snr, 3), (problem, 9), (trace, 2), (data, 4), (environment, 1), (own_code, 6),
)  # fmt: skip
RUN_DIRECTORIES = 9  # per hundred


def cases(count: int, seed: int, folder: Path, whole: Path) -> Iterator[Case]:
    """Bad inputs, each with files of its own below `folder`; `whole` is a finished run."""
    makers = [maker for maker, weight in MAKERS for _ in range(weight)]
    for number in range(count):
        dice = random.Random(f"{seed}/{number}")
        place = folder / str(number)
        place.mkdir(parents=True)
        chosen = dice.randrange(len(makers) + RUN_DIRECTORIES)
        if chosen >= len(makers):
            yield run_directory(dice, place, whole)
        else:
            yield makers[chosen](dice, place)
        shutil.rmtree(place, ignore_errors=True)
