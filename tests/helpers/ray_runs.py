"""Runs on a Ray cluster, in a process of their own: Ray leaves threads and warnings behind.

    python ray_runs.py ADDRESS

Prints what each case gave, as one JSON document. The current directory holds `own_net.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from camu.config import Config
from camu.errors import CamuError
from camu.schemes import Scheme, make_scheme
from camu.simulation import Callback, Record, Run, simulate
from camu.simulation.ray_session import connected
from camu.world import build_world
from helpers.configs import small
from helpers.killed_runs import Everything

# A model that does in training what the file `order` says: wait until two processes have trained
# ("meet"), end its own process ("once", "always"), or raise ("error", and "trial" when an actor
# tries the model out). It notes the processes that import it and those that train it.
OWN_NET = """
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from own_layers import Flat

HERE = Path(__file__).resolve().parent
IMPORTER = os.getpid()
with (HERE / "imported").open("a") as notes:
    notes.write(f"{os.getpid()}\\n")


class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.layers = nn.Sequential(Flat(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, images):
        if torch.is_grad_enabled():  # in training, but not in the engine's trial pass
            with (HERE / "trained").open("a") as notes:
                notes.write(f"{os.getpid()}\\n")
            order = (HERE / "order").read_text()
            while order == "meet" and len(set((HERE / "trained").read_text().split())) < 2:
                time.sleep(0.01)
            if order == "error":
                return self.missing(images)
            if order == "once":
                (HERE / "order").write_text("")
            if order in ("once", "always"):
                os.kill(os.getpid(), signal.SIGKILL)
        elif os.getpid() != IMPORTER and (HERE / "order").read_text() == "trial":
            return images / self.missing
        return self.layers(images)
"""
OWN_LAYERS = """
from torch import nn


class Flat(nn.Module):
    def forward(self, images):
        return images.flatten(1)
"""

SIX = [
    {"name": name, "devices": 3, "x": [x, x + 10.0], "y": [-5.0, 5.0]}
    for name, x in (("I", -10.0), ("II", 10.0))
]


def tiny(**changes: object) -> Config:
    """Six devices and four rounds; __ for dots."""
    base = {"fleet__regions": SIX, "data__samples_per_device": 40, "data__noniid_devices": 4}
    return small(**base | {"run__rounds": 4, "machine__workers": 0, **changes})


def own(**changes: object) -> Config:
    """Its units train one by one: what `forward` does happens on the actor of each."""
    model = {"training__model": "./own_net.py:Net", "machine__kernel": "torch"}
    return tiny(scheme__name="fedavg", **model, **changes)


class After(Callback):
    """Does something after a round."""

    def __init__(self, last: int, act: Callable[[], object]) -> None:
        self.last, self.act = last, act

    def on_round(self, run: Run, record: Record) -> None:
        if record.round == self.last:
            self.act()


def trained_by() -> list[int]:
    """The processes that trained the own model, in the order of their steps."""
    return [int(line) for line in Path("trained").read_text().split()]


def kill_an_actor() -> None:
    """Kill the actor that took the last step, between two rounds."""
    orders("")()
    os.kill(trained_by()[-1], signal.SIGKILL)


def result(config: Config, scheme: Scheme | None = None, *watchers: Callback) -> object:
    try:
        history = simulate(build_world(config), scheme or make_scheme(config), watchers).history
    except CamuError as error:
        return f"{type(error).__name__}: {error}"
    return [history.weights_sha256, [record.to_dict() for record in history.records]]


def orders(text: str) -> Callable[[], object]:
    return lambda: Path("order").write_text(text)


def main(address: str) -> None:
    """Each case twice where the bits matter, with local workers and on the cluster."""
    found: dict[str, object] = {}
    orders("")()
    found["own model, local"] = result(own(machine__workers=1))
    Path("trained").unlink()
    found["stateful, local"] = result(tiny(machine__workers=1), Everything())
    with connected(address):
        ray = {"machine__engine": "ray"}
        found["stateful, ray"] = result(tiny(**ray), Everything())
        orders("meet")()
        watchers = After(1, kill_an_actor), After(2, orders("once"))
        found["own model, ray, two kills"] = result(own(**ray), None, *watchers)
        found["ordered kill done"] = Path("order").read_text() == ""
        found["trained by"] = len(set(trained_by()))
        found["imported by"] = Path("imported").read_text().split() == [str(os.getpid())]
        one = {"machine__workers": 1, **ray}
        found["job that always kills"] = result(own(**one), None, After(1, orders("always")))
        orders("")()
        found["error, ray"] = result(own(**one), None, After(1, orders("error")))
        orders("")()
        found["error, local"] = result(own(machine__workers=1), None, After(1, orders("error")))
        orders("trial")()
        found["error at the start"] = result(own(**one))
        alive = [psutil.Process(pid) for pid in set(trained_by()) if psutil.pid_exists(pid)]
        alive = [process for process in alive if process.pid != os.getpid()]
        found["actors left"] = len(psutil.wait_procs(alive, timeout=30)[1])
        found["too many workers"] = result(own(machine__workers=3, machine__engine="ray"))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
