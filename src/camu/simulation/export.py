"""The trained model of a run directory: read back as a torch module, written in other formats."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from camu.config import Config
from camu.data import dataset_spec, is_own
from camu.errors import CamuError, InputError
from camu.files import write_bytes, write_text
from camu.learning.models import made_up_inputs, seeded_model
from camu.sealed import SEAL, check_tensors
from camu.simulation.directory import RunDirectory
from camu.simulation.manifest import REMEDY
from camu.simulation.model_card import model_card

SUFFIXES = (".safetensors", ".pt2", ".onnx")
DEPLOYED = "status.json"  # which only runs on nodes have


def load_model(directory: str | Path) -> nn.Module:
    """The trained model of a finished run, as `Result.model()` gives it.

    It is rebuilt from config.toml and model.safetensors of the run directory; own data sets are not
    needed.
    """
    run = RunDirectory(Path(directory))
    run.read_config()  # a directory without a run is refused first
    if not run.summary.exists():
        on_nodes = (run.path / DEPLOYED).exists()
        raise CamuError(
            f"{run.path}: the run has not ended, so it has no model yet; continue it with: "
            f"camu {'deploy run' if on_nodes else 'run'} --resume --out {run.path}"
        )
    if not run.model.exists():
        raise CamuError(f"{run.model}: the file is missing; run it again in another directory")
    check_tensors(run.model, REMEDY)
    config = _config_of(run)
    module = seeded_model(config).eval()
    try:
        module.load_state_dict(load_file(run.model))
    except SafetensorError as error:
        raise CamuError(f"{run.model}: cannot be read ({error})") from None
    except RuntimeError:
        raise CamuError(
            f"{run.model}: the tensors do not fit the model {config.training.model}; has its code "
            "changed since the run?"
        ) from None
    return module


def export_model(directory: str | Path, path: Path) -> Path:
    """Write the trained model of a finished run to a file; its suffix chooses the format.

    Beside it goes a model card, `NAME.md`, whose place is returned.

    `.safetensors` holds the named tensors, `.pt2` is a program for `torch.export.load`, `.onnx` is
    for other runtimes. The programs take any number of samples, images as floats in [0, 1]. All
    have the metadata of the run's model (of `.pt2` in the extra file `camu.json`), with the
    `scaling` of standardised data.
    """
    check_format(path)
    module, run = load_model(directory), RunDirectory(Path(directory))
    config = _config_of(run)
    if path.suffix == ".safetensors":
        data = run.model.read_bytes()
    else:
        data = _program(module, config, path, _metadata(run.model))
    write_bytes(path, data)
    card = card_of(path)
    write_text(card, model_card(run, config, path))
    return card


def card_of(path: Path) -> Path:
    """Where the model card of an exported file is."""
    return path.with_name(f"{path.name}.md")


def _program(module: nn.Module, config: Config, path: Path, metadata: dict[str, str]) -> bytes:
    """The model as a program; one that torch cannot trace is refused in a sentence."""
    write = _onnx if path.suffix == ".onnx" else _pt2
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch uses parts of itself that it has deprecated
            return write(module, config, metadata)
    except Exception as error:  # torch raises many kinds for a module that it cannot trace
        first = str(error).strip().partition("\n")[0]
        raise CamuError(
            f"{path}: torch cannot export the model {config.training.model} "
            f"({type(error).__name__}: {first})"
        ) from error


def check_format(path: Path) -> None:
    """Refuse a file whose suffix is no format, and ONNX where its packages are missing."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: the name must end with {', '.join(SUFFIXES[:-1])} or .onnx")
    if path.suffix == ".onnx":
        try:
            import onnx  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError:
            raise InputError(
                f"{path}: install the extra with pip install 'camu-fl[onnx]'"
            ) from None


def _config_of(run: RunDirectory) -> Config:
    """The configuration of a run, with only the shape of data that may no longer be there."""
    config = run.read_config()
    shape = _metadata(run.model).get("samples")
    if shape is None or not is_own(config.data.dataset):
        return config
    return config.replace({"data.dataset": shape})


def _metadata(path: Path) -> dict[str, str]:
    """What is written beside the tensors of a run's model."""
    with safe_open(path, "pt") as opened:
        found: dict[str, str] = dict(opened.metadata())
    return {name: found[name] for name in sorted(found.keys() - {SEAL})}


def _pt2(module: nn.Module, config: Config, metadata: dict[str, str]) -> bytes:
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, _example(config), dynamic_shapes=({0: batch},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"camu.json": json.dumps(metadata)})
    return buffer.getvalue()


def _onnx(module: nn.Module, config: Config, metadata: dict[str, str]) -> bytes:
    spec = dataset_spec(config.data)
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        module,
        _example(config),
        input_names=["images" if spec.inputs == "images" else "inputs"],
        output_names=["outputs" if spec.target == "numbers" else "logits"],
        dynamic_shapes=({0: batch},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    for name, text in metadata.items():
        proto.metadata_props.add(key=name, value=text)
    return bytes(proto.SerializeToString())


def _example(config: Config) -> tuple[torch.Tensor]:
    """Two samples: torch takes a batch of one for a constant."""
    return (made_up_inputs(dataset_spec(config.data), 2),)
