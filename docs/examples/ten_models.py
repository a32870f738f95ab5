"""Ten models of other shapes than the built-in ones, for `camu measure --predict`."""

import math
from itertools import pairwise

import torch
from torch import nn


class Perceptron(nn.Sequential):
    """One hidden layer of 200 units."""

    def __init__(self, shape, outputs, hidden=(200,)):
        sizes = [math.prod(shape), *hidden]
        layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
        super().__init__(nn.Flatten(), *layers, nn.Linear(sizes[-1], outputs))


class DeepPerceptron(Perceptron):
    """Three hidden layers of 512 units."""

    def __init__(self, shape, outputs):
        super().__init__(shape, outputs, hidden=(512, 512, 512))


class McMahan(nn.Sequential):
    """The network of federated averaging: 5x5 convolutions to 32 and 64 channels, 512 units."""

    def __init__(self, shape, outputs):
        places = 64 * math.prod(side // 4 for side in shape[1:])
        super().__init__(
            *(nn.Conv2d(shape[0], 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(places, 512), nn.ReLU(), nn.Linear(512, outputs)),
        )


class LeNet(nn.Sequential):
    """LeNet-5 with the sigmoid replaced."""

    def __init__(self, shape, outputs):
        height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
        super().__init__(
            *(nn.Conv2d(shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(16 * height * width, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, outputs)),
        )


class Vgg(nn.Sequential):
    """Three pairs of 3x3 convolutions to 32, 64 and 128 channels."""

    def __init__(self, shape, outputs):
        layers, before = [], shape[0]
        for after in (32, 64, 128):
            for size in (before, after):
                layers += [nn.Conv2d(size, after, 3, padding=1), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            before = after
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, outputs))


class Separable(nn.Sequential):
    """Depthwise convolutions, each followed by one of 1x1, as in MobileNet."""

    def __init__(self, shape, outputs):
        layers, before = [nn.Conv2d(shape[0], 32, 3, 2, 1), nn.ReLU()], 32
        for after in (64, 128, 128):
            layers += [nn.Conv2d(before, before, 3, padding=1, groups=before), nn.ReLU()]
            layers += [nn.Conv2d(before, after, 1), nn.ReLU()]
            before = after
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, outputs))


class Rows(nn.Module):
    """A GRU of 64 units that reads an image row by row."""

    def __init__(self, shape, outputs):
        super().__init__()
        self.cell = nn.GRU(shape[0] * shape[2], 64, batch_first=True)
        self.output = nn.Linear(64, outputs)

    def forward(self, images):
        rows = images.transpose(1, 2).flatten(2)
        return self.output(self.cell(rows)[0][:, -1])


class Patches(nn.Module):
    """A small vision transformer: patches of 7x7, two layers of four heads, width 64."""

    def __init__(self, shape, outputs):
        super().__init__()
        self.embed = nn.Conv2d(shape[0], 64, 7, 7)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(64, outputs)

    def forward(self, images):
        patches = self.embed(images).flatten(2).transpose(1, 2)
        return self.output(self.layers(patches).mean(1))


class Series(nn.Module):
    """1D convolutions over the pixels in a row."""

    def __init__(self, shape, outputs):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(1, 16, 7, 2), nn.ReLU(), nn.Conv1d(16, 32, 7, 2), nn.ReLU()),
            *(nn.Conv1d(32, 64, 7, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
        )
        self.output = nn.Linear(64, outputs)

    def forward(self, images):
        return self.output(self.body(torch.flatten(images, 1)[:, None]).flatten(1))
