"""The model card of an exported model: what it is, how good it is, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from camu.config import Config
from camu.data import DatasetSpec, dataset_spec
from camu.learning.metrics import find_metric
from camu.simulation.directory import RunDirectory

_LOADING = {
    ".safetensors": "`safetensors.torch.load_file(path)`: tensors by name",
    ".pt2": "`torch.export.load(path).module()`: a program for any number of samples",
    ".onnx": "`onnxruntime.InferenceSession(path)`: a program for any number of samples",
}


def model_card(run: RunDirectory, config: Config, path: Path) -> str:
    """Markdown about the model of a finished run that was exported to this file."""
    summary = run.read_summary()
    spec = dataset_spec(config.data)
    metric = find_metric(summary["metric"])
    final = summary["final_score"]
    score = "the model has blown up" if final is None else f"{metric.title} {metric.show(final)}"
    parts = {
        "The model": [
            f"`{config.training.model}`, trained by federated learning with camu "
            f"{summary['version']}, scheme `{summary['scheme']}`, {summary['rounds']} rounds, seed "
            f"{summary['seed']}.",
            f"To load it: {_LOADING[path.suffix]}.",
            f"Inputs: {_inputs(spec)}. Outputs: {_outputs(spec)}.",
        ],
        "How good it is": [
            f"At the end: {score}, on the test samples of the data set.",
            *filter(None, [_chance(summary), _private(summary)]),
        ],
        "What it was trained on": [
            f"{spec.title or config.data.dataset}, divided over {_devices(config)}.",
            *([f"Licence of the data: {spec.licence}."] if spec.licence else []),
        ],
        "What training cost": [
            f"{summary['joules']:.4g} J, {summary['virtual_seconds']:.4g} s and "
            f"{sum(summary['bits'].values()) / 8e6:.4g} MB, simulated.",
        ],
        "Where it comes from": [
            f"Weights: SHA-256 `{summary['weights_sha256']}`, by the kernel {summary['kernel']}.",
            "The directory of the run has the configuration and every round; the same "
            "configuration, version and kernel give the same weights.",
        ],
        "Not said here": [
            "Who the model may be used on, and how it treats groups of people: camu does not know."
        ],
    }
    lines = [f"# Model card of {path.name}", ""]
    for title, texts in parts.items():
        lines += [f"## {title}", "", *(f"- {text}" for text in texts), ""]
    return "\n".join(lines).rstrip() + "\n"


def _inputs(spec: DatasetSpec) -> str:
    shape = " x ".join(map(str, spec.shape))
    if spec.inputs == "images":
        return f"floats in [0, 1], images of {shape}"
    return f"{spec.inputs}, {shape} in a sample"


def _outputs(spec: DatasetSpec) -> str:
    if spec.target == "numbers":
        return "numbers"
    return f"a logit for each of {spec.classes} classes"


def _devices(config: Config) -> str:
    if config.fleet.file is not None:
        return "the devices of a fleet file"
    count = sum(region.devices for region in config.fleet.regions)
    return f"{count} simulated devices"


def _chance(summary: dict[str, Any]) -> str | None:
    """A warning where the model always says the same."""
    text = str(summary.get("chance", ""))
    return f"{text[0].upper()}{text[1:]}." if text else None


def _private(summary: dict[str, Any]) -> str | None:
    """The account of differential privacy, where there is one."""
    if "epsilon" not in summary:
        return None
    return f"Differential privacy of the devices: epsilon {summary['epsilon']:.3g}."
