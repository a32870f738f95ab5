"""Bad tables and documents: fleets, links, stations, traces and problems."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from torture.calls import EXAMPLES, Case, write


def _fleet_rows() -> list[list[str]]:
    return [line.split(",") for line in (EXAMPLES / "fleet.csv").read_text().splitlines()]


BAD_CELLS = {
    "id": ["", "gate-2", "a\x1b[2J", "a\0b", "x" * 300, "\u202egate"],
    "x": ["east", "nan", "inf", "1e308", "-1e8", "1e400", "0x1", "1,5,2", "--"],
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
            ["", "\n\n", ",".join(header), lines.replace(",", " "), lines.encode("utf-32"),
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


TRACES = {
    "faults.dropout_trace": (
        "", "round\n1\n", "round,device\n0,d0\n", "round,device\n1,nobody\n", "device,round\n",
        "round,device\n1\n", "round,device\n-3,d0\n", "round,device\n" + "9" * 5000 + ",d0\n",
        "round,device\n²,d0\n", 'round,device\n1,"d0\n\0', "round,device\nx,y,z\n",
    ),
    "faults.availability_trace": (
        "", "start,end\n", "start,end,device\n1,0,0\n", "start,end,device\n0,inf,0\n",
        "start,end,device\nnan,1,0\n", "start,end,device\n0,1,nobody\n",
        "start,end,device\n-1,1,0\n", "start,end,device\n0,1e400,0\n", "start,end,device\n1,1,0\n",
    ),
    "fleet.harvest_trace": (
        "", "seconds,device\n", "seconds,device,watts\n0,nobody,1\n",
        "seconds,device,watts\n0,*,nan\n", "seconds,device,watts\n0,*,-1\n",
        "seconds,device,watts\n0,*,1e400\n", "seconds,device,watts\n-1,*,1\n",
        "seconds,device,watts\nnan,*,1\n",
        "seconds,device,watts\n0,*\n", 'seconds,device,watts\n0,"*\0,1\n',
    ),
    "fleet.position_trace": (
        "", "seconds,device,x\n", "seconds,device,x,y\n0,nobody,1,1\n",
        "seconds,device,x,y\n-1,0,1,1\n", "seconds,device,x,y\n0,0,1e308,1\n",
        "seconds,device,x,y\n0,0,1,1\n0,0,2,2\n", "seconds,device,x,y,z\n0,0,1,,1\n",
        "seconds,device,x,y\n0,0,1,1\n",
    ),
    "fleet.base_station_file": (
        "", "id,x,y\n", "id,x,y\na,0,0\na,1,1\n", "id,x,y\na,nan,0\n", "id,x,y\na,1e308,0\n",
        "id,x\na,0\n", "id,x,y,z\na,0,0,high\n", "id,latitude,longitude\na,95,0\n",
        "id,latitude,longitude\na,0,1e9\n", "id,x,y\n\x1b[2J,0,0\n", "id,x,y\n,0,0\n", "\0",
    ),
}  # fmt: skip


def trace(dice: random.Random, place: Path) -> Case:
    """Who is absent, who charges, where base stations are."""
    key = dice.choice(list(TRACES))
    path = write(place / "trace.csv", dice.choice(TRACES[key]))
    preset = "battery" if key == "fleet.harvest_trace" else "demo"
    out = str(place / "run")
    arguments = ["run", "--preset", preset, "--set", f"{key}={path}", "--out", out]
    return Case("traces, stations", arguments, [str(path)])


def traced(dice: random.Random, place: Path) -> Case:
    """Path gains of ray tracers."""
    kind = dice.choice(["npz", "npy", "csv", "cut", "objects", "shape", "values", "positions"])
    path = place / f"gains.{'npy' if kind == 'npy' else 'csv' if kind == 'csv' else 'npz'}"
    gains = np.full((3, 2), 1e-9)
    if kind == "npz":
        np.savez(path, nothing=gains)
    elif kind == "npy":
        np.save(path, np.array(["a", "b"]))
    elif kind == "csv":
        write(
            path, dice.choice(["", "id,gain\na,1\n", "id,gain_db\na,loud\n", "id,gain_db\na,nan\n"])
        )
    elif kind == "objects":
        np.savez(path, gain=np.array([{}], dtype=object))
    elif kind == "shape":
        np.savez(path, gain=dice.choice([np.zeros((0, 0)), np.zeros((2, 2, 2, 2)), np.float64(3)]))
    elif kind == "values":
        np.savez(path, gain=dice.choice([-gains, gains * 0, gains * np.inf, gains * np.nan]))
    elif kind == "positions":
        where = dice.choice([np.full((3, 3), 1e308), np.zeros((5, 3)), np.full((3, 3), np.nan)])
        np.savez(path, gain=gains, rx_pos=where)
    else:
        np.savez(path, gain=gains)
        write(path, path.read_bytes()[: dice.randrange(1, 200)])
    out = str(place / "fleet")
    return Case(
        "path gains", ["fleet", "import", str(path), "--out", out, "--samples", "5"], [str(path)]
    )


P2 = {
    "kind": "P2", "noise_watts": 1e-13, "payload_bits": 1e6, "convexity": 0.1, "smoothness": 1.0,
    "learning_rate": 0.1, "initial_gap": 1.0, "energy_joules": 1000.0, "seconds": 1000.0,
}  # fmt: skip
CLUSTER = {
    "weight": 0.5, "divergence": 0.1, "dissimilarity": 0.1, "gain": 1e-9, "bandwidth_hz": 1e6,
    "gather_seconds": 0.1, "gather_joules": 0.1, "max_updates": 3, "max_power_watts": 1.0,
}  # fmt: skip
DEVICE = {"cycles": 1e7, "capacitance": 1e-28, "max_hz": 1e9}


def p2(dice: random.Random, place: Path) -> Case:
    """A problem over several rounds: wrong values are refused; extreme ones may have an answer."""
    document: dict[str, Any] = {**P2, "max_rounds": 200}
    document["clusters"] = [{**CLUSTER, "devices": [dict(DEVICE)]} for _ in range(2)]
    cluster = document["clusters"][dice.randrange(2)]
    where = dice.choice([document, cluster, cluster["devices"][0]])
    name = dice.choice([key for key in where if key != "kind"])
    extremes = isinstance(where[name], float) and dice.random() < 0.5
    if extremes:
        where[name] = dice.choice([5e-324, 1e-300, 1e-30, 1e15, 1e30])
    else:
        wrong = ["x", None, {}, [], True, float("nan"), float("inf"), -1.0, 1e31, 10**400]
        where[name] = dice.choice(wrong)
    path = write(place / "problem.json", json.dumps(document))
    arguments = ["allocate", "--json", str(path)]
    return Case("PROBLEM.json", arguments, [str(path), name], may_work=extremes)
