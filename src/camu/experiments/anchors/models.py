"""The models of published tables that are not built in, as their authors' code has them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's pixels, as in nearly all code for it


def standardised(images: Tensor) -> Tensor:
    """Pixels from 0 to 1 as the authors' loaders scale them."""
    return (images - MEAN) / DEVIATION


class Perceptron(nn.Module):
    """784-200-10, whose dropout is before the ReLU."""

    hidden = 200
    dropped = 0.5

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.layer_input = nn.Linear(784, self.hidden)
        self.layer_hidden = nn.Linear(self.hidden, classes)
        self.dropout = nn.Dropout(self.dropped)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.dropout(self.layer_input(standardised(images).flatten(1)))
        outputs: Tensor = self.layer_hidden(F.relu(inner))
        return outputs


class NarrowPerceptron(Perceptron):
    """The same with 64 hidden units."""

    hidden = 64


class SoftmaxPerceptron(NarrowPerceptron):
    """784-64-10 with probabilities as outputs, for a loss without a logarithm."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.softmax(super().forward(images), 1)


class Convolutions(nn.Module):
    """Convolutions of 10 and 20 channels, 50 hidden units, dropout of channels and of units."""

    dropped = 0.5

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.conv2_drop = nn.Dropout2d(self.dropped)
        self.fc1 = nn.Linear(320, 50)
        self.fc1_drop = nn.Dropout(self.dropped)
        self.fc2 = nn.Linear(50, classes)

    def forward(self, images: Tensor) -> Tensor:
        first = F.relu(F.max_pool2d(self.conv1(standardised(images)), 2))
        second = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(first)), 2))
        outputs: Tensor = self.fc2(self.fc1_drop(F.relu(self.fc1(second.flatten(1)))))
        return outputs


class PerceptronWithoutDropout(Perceptron):
    """A control: 784-200-10 without dropout."""

    dropped = 0.0


class ConvolutionsWithoutDropout(Convolutions):
    """A control: the same convolutions without dropout."""

    dropped = 0.0


class SigmoidRegression(nn.Module):
    """784-10 whose outputs, from 0 to 1, are taken for logits."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(shape[-1], classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sigmoid(self.linear(inputs))


class TanhPerceptron(nn.Module):
    """784-50-10 with a hyperbolic tangent, on pixels from 0 to 1."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 50)
        self.output = nn.Linear(50, classes)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.output(torch.tanh(self.hidden(images.flatten(1))))
        return outputs


class SmoothMachine(nn.Module):
    """784 weights without a bias, which begin at 0, for the smooth hinge loss."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(784, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.linear(images.flatten(1))
        return outputs


class SimpleCNN(nn.Module):
    """Convolutions of 6 and 16 channels, then 120 and 84 hidden units; 44 426 numbers on MNIST."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        side = (shape[-1] - 12) // 4
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        first = F.max_pool2d(F.relu(self.conv1(images)), 2)
        second = F.max_pool2d(F.relu(self.conv2(first)), 2).flatten(1)
        outputs: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(second)))))
        return outputs


def minus_probability(outputs: Tensor, labels: Tensor) -> Tensor:
    """Minus the probability of the right class: a likelihood loss whose logarithm is missing."""
    return -outputs.gather(1, labels[:, None])[:, 0]


def log_loss_of_probabilities(outputs: Tensor, labels: Tensor) -> Tensor:
    """A control: the cross-entropy of outputs that are probabilities already."""
    return F.nll_loss(torch.log(outputs.clamp(min=1e-12)), labels, reduction="none")
