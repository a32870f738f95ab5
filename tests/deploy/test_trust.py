"""Hostile nodes: what limits prevent, with the same model as `camu reproduce trust` computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy.deployment import Deployment
from camu.deploy.messages import read_task, write_report, write_result
from camu.deploy.server.app import serve
from camu.experiments import trust
from camu.learning.configured import model_layout
from camu.simulation.result import read_start
from camu.world import build_world, with_data
from helpers.nodes import partition_nodes, wait_without_time


def test_flipping_nodes_cost_as_much_as_in_the_table(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_without_time(monkeypatch)
    config = trust.world_of(0, 8, "mean").config.replace({"training.model": "logistic"})
    bad = trust.bad_devices(0, 4, trust.DEVICES)
    nodes = partition_nodes(config, trust.DEVICES)

    def answer(number: int, message: Any) -> Any:
        node = nodes[number]
        if message.metadata.message_type == "query":
            return write_report(node.report())
        task, starts = read_task(message.content, model_layout(config))
        results = node.train(task, starts)
        if node.partition in bad:
            (result,), (start,) = results, starts
            sent = trust.spoil("flip", [result.weights], [start], [0])
            results = [result._replace(weights=sent[0])]
        return write_result(task, results)

    models, histories = {}, {}
    for rule in ("no limits", "limits"):
        folder, clip = tmp_path / rule, trust.RULES[rule][0]
        wanted = Deployment(config, str(folder), "device", nodes=trust.DEVICES, clip=clip)
        histories[rule] = serve(fake_grid(nodes, answer), wanted)
        models[rule] = read_start(folder / "model.safetensors", config).weights.parameters
    run = trust.attacked(with_data(build_world(config)), "limits", "flip", 4)
    np.testing.assert_allclose(models["limits"], run.weights.parameters, atol=1e-5)
    assert np.abs(models["no limits"] - run.weights.parameters).max() > 1e-3
    assert sum(record.faults["clipped"] for record in histories["limits"].records) > 0
    opposed = [record.faults["opposed"] for record in histories["limits"].records]
    assert opposed[1] == 0 < opposed[-1] <= 5  # a quarter of the devices at most
