"""`camu export`: the trained model of a run as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camu.cli.options import check_outputs, to_file


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run.")],
    to: Annotated[
        Path,
        to_file("--to", "The file: .safetensors, .pt2 or .onnx."),
    ],
) -> None:
    """Write the trained model of a run: tensors by name, a torch program, or ONNX.

    The model takes samples as it was trained on, images as floats in [0, 1] of shape (n, channels,
    height, width), and gives logits (n, classes) or numbers. `.pt2` is loaded with
    torch.export.load; `.onnx` needs the extra `onnx`. The model card FILE.md says what the model
    is, how good it is and where it comes from.
    """
    from camu.simulation.export import card_of, export_model

    check_outputs([to, card_of(to)])
    card = export_model(run, to)
    print(f"model: {to}, its card: {card}")
