"""The slow, obvious computation that the engine must agree with: plain torch, device by device."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn


def flat(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    parameters = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    buffers = [b.reshape(-1) for b in model.buffers() if b.is_floating_point()]
    return parameters, torch.cat(buffers) if buffers else torch.zeros(0)


def images_and_labels(toy, indices):
    images = torch.from_numpy(toy.images[indices]).float()[:, None] / 255
    return images, torch.from_numpy(toy.labels[indices])


def average(models, shares):
    state = models[0].state_dict()
    for name, value in state.items():
        if value.is_floating_point():
            total = sum(
                s * m.state_dict()[name].double() for s, m in zip(shares, models, strict=True)
            )
            value.copy_(total)


def train(model, toy, engine, job, round_number=0):
    """Train a unit: one plain model per member, averaged after every local update."""
    unit = copy.deepcopy(model)
    shares = [weight / sum(job.weights) for weight in job.weights]
    for update in range(job.updates):
        members = []
        for device in job.members:
            local = copy.deepcopy(unit)
            optimiser = torch.optim.SGD(
                local.parameters(), lr=engine.learning_rate, weight_decay=engine.l2
            )
            if engine.local_update == "step":
                batches = [engine.batches.step(round_number, device, update)]
            else:
                batches = engine.batches.epoch(round_number, device, update)
            for indices in batches:
                images, labels = images_and_labels(toy, indices)
                optimiser.zero_grad()
                F.cross_entropy(local(images), labels).backward()
                optimiser.step()
            members.append(local)
        average(members, shares)
        unit = members[0]
    return flat(unit)
