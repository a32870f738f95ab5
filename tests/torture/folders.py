"""Bad files and directories: things that are no file, damaged data, damaged runs."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from torture.calls import EXAMPLES, Case, write


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
        "trace": ["run", "--out", str(place / "run"), "--set", f"faults.dropout_trace={path}"],
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


NAMES = ("train_images", "train_labels", "test_images", "test_labels")


def own_data(dice: random.Random, place: Path) -> Case:
    """Samples of the user's in an .npz file, in .npy files, or as pictures."""
    arrays: dict[str, Any] = {
        "train_images": np.zeros((40, 8, 8), np.uint8), "train_labels": np.arange(40) % 4,
        "test_images": np.zeros((8, 8, 8), np.uint8), "test_labels": np.arange(8) % 4,
    }  # fmt: skip
    name = dice.choice(NAMES)
    one = arrays[name]
    arrays[name] = dice.choice([
        one[:0], one[1:], one.astype(object), one.astype(str), one.astype(complex),
        -1 - one.astype(int), one + np.nan, one * 1e300 + 1e300, np.float64(1),
        np.zeros((2, 2, 2, 2, 2)),
    ])  # fmt: skip
    path, kind = place / "data.npz", dice.choice(["npz", "npz", "npy", "cut", "flip", "pictures"])
    if kind == "pictures":
        path = place / "pictures"
        write(path / "train" / "a" / "1.png", dice.choice([b"", b"\x89PNG\r\n", bytes(99)]))
        write(path / "test" / "a" / "1.png", b"GIF89a")
    elif kind == "npy":
        path = place / "arrays"
        path.mkdir()
        for which, array in arrays.items():
            np.save(path / f"{which}.npy", array)
    else:
        if kind != "npz":
            arrays[name] = one
        np.savez(path, **arrays)
        content = bytearray(path.read_bytes())
        if kind == "cut":
            path.write_bytes(content[: dice.randrange(len(content) - 30)])
        elif kind == "flip":
            place_of = content.index(b"NUMPY") + dice.randrange(200)
            content[place_of] ^= 1 << dice.randrange(8)
            path.write_bytes(content)
    settings = ["--preset", "demo", "--set", f"data.dataset={path}", "--set", "run.rounds=1"]
    out = str(place / "run")
    return Case("own data", ["run", *settings, "--out", out, "--json"], [str(path)])


def own_table(dice: random.Random, place: Path) -> Case:
    """A table of the user's with one wrong cell, column, row or key, or a cut Parquet file."""
    rows = [["a", "b", "who", "label"]]
    rows += [[str(k / 7), str(-k), f"user {k % 4}", "xyz"[k % 3]] for k in range(60)]
    path, keys = place / "table.csv", {"device_column": "who", "partition": "given"}
    kind = dice.choice(["cell", "column", "row", "key", "empty", "parquet"])
    if kind == "cell":
        wrong = dice.choice(["", "nan", "-inf", "red", "1,2", "0x1f", "\x00"])
        rows[dice.randrange(1, 60)][dice.randrange(2)] = wrong
    elif kind == "column":
        rows[0][dice.randrange(4)] = dice.choice(["a", "b", "", "label"])
        rows[0][3] = rows[0][0]
    elif kind == "row":
        rows[dice.randrange(60)].pop()
    elif kind == "key":
        keys[dice.choice(["target_column", "device_column"])] = dice.choice(["A", "c", "b b", "€"])
    elif kind == "empty":
        rows = rows[: dice.randrange(3)]
    else:
        path = place / "table.parquet"
    text = "\n".join(map(",".join, rows))
    write(path, text.encode() if path.suffix == ".csv" else b"PAR1" + text.encode()[:99] + b"PAR1")
    settings = ["--preset", "demo", "--set", f"data.dataset={path}", "--set", "run.rounds=1"]
    settings += [word for key, value in keys.items() for word in ("--set", f"data.{key}={value}")]
    return Case("own table", ["run", *settings, "--out", str(place / "run"), "--json"], [])


def checkpoint(dice: random.Random, place: Path, whole: Path) -> Case:
    """A run whose only checkpoint, or whose record of rounds, was edited by hand."""
    copied = place / "run"
    shutil.copytree(whole, copied)
    (copied / "checkpoint" / "previous.safetensors").unlink(missing_ok=True)
    path = copied / "checkpoint" / "state.safetensors"
    kind = dice.choice(["tensor", "tensor", "state", "state", "header", "rounds", "rounds"])
    if kind == "rounds":
        path = copied / "rounds.jsonl"
        _edit_rounds(dice, path)
    elif kind == "header":
        content = bytearray(path.read_bytes())
        content[dice.randrange(8, 600)] ^= 1 << dice.randrange(7)
        path.write_bytes(content)
    else:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = json.loads(metadata["camu"])
        if kind == "tensor":
            name = dice.choice(["parameters", "device_joules"])
            value = dice.choice([np.nan, np.inf, 1e38, 0.0])
            arrays[name] = dice.choice([arrays[name] + value, arrays[name].astype(np.int32) + 1])
            arrays[name][0] += 1
        else:
            name = dice.choice(list(state))
            state[name] = dice.choice([None, 3, "x", [], {}, -1, state[name], {"a": [1]}])
            state["future" if dice.random() < 0.3 else name] = dice.choice([7.5, "y"])
        save_file(arrays, path, metadata={**metadata, "camu": json.dumps(state)})
    return Case("checkpoints", ["run", "--resume", "--out", str(copied)], [str(path)])


def _edit_rounds(dice: random.Random, path: Path) -> None:
    lines = path.read_text().splitlines()
    number = dice.randrange(1, len(lines))
    kind = dice.choice(["missing", "twice", "swapped", "edited"])
    if kind == "missing":
        del lines[number]
    elif kind == "twice":
        lines.insert(number, lines[number])
    elif kind == "swapped":
        lines[number - 1], lines[number] = lines[number], lines[number - 1]
    else:
        lines[number] = lines[number].replace("0.", "1.", 1)
    path.write_text("\n".join([*lines, ""]))
