"""LoRA (Hu et al., 2022): a model that was trained before, and small adapters that are trained.

What is frozen (`requires_grad_(False)`) stays at the devices: only the adapters are sent.

    camu run -c docs/examples/tasks/images.toml --set training.model=mlp --out runs/base
    camu export runs/base --to backbone.safetensors
    camu run -c docs/examples/tasks/images.toml --set training.model=docs/examples/adapters.py:Net
"""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

BACKBONE = Path("backbone.safetensors")  # the built-in `mlp` of an earlier run, if it is there
RANK, SCALE = 4, 2.0


class Lora(nn.Module):
    """A frozen linear layer plus SCALE B A, whose B starts at 0."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(RANK, layer.in_features) / math.sqrt(layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The layer's outputs, corrected by the adapter."""
        outputs: torch.Tensor = self.layer(inputs) + SCALE * (inputs @ self.a.T @ self.b.T)
        return outputs


class Net(nn.Module):
    """The layers of `mlp` with an adapter each."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        sizes = {"hidden1": (math.prod(shape), 200), "hidden2": (200, 200)}
        layers = {name: nn.Linear(*size) for name, size in sizes.items()}
        layers["output"] = nn.Linear(200, outputs)
        if BACKBONE.exists():
            nn.ModuleDict(layers).load_state_dict(load_file(BACKBONE))
        self.adapted = nn.ModuleDict({name: Lora(layer) for name, layer in layers.items()})

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for some samples."""
        hidden = torch.relu(self.adapted["hidden1"](inputs.flatten(1)))
        hidden = torch.relu(self.adapted["hidden2"](hidden))
        outputs: torch.Tensor = self.adapted["output"](hidden)
        return outputs
