"""Models of a user's with what makes training or sending them harder."""

from __future__ import annotations

import torch
from torch import nn


class Dropping(nn.Module):
    """Dropout of several kinds, and an embedding, for tokens (n, length)."""

    def __init__(self, shape: tuple[int, ...], outputs: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 6, padding_idx=0)
        self.dropout, self.channels = nn.Dropout(0.3), nn.Dropout1d(0.2)
        self.output = nn.Linear(6, outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.output(self.channels(self.dropout(self.embedding(tokens))))


class Recurrent(nn.Module):
    """Two layers of an LSTM over a series (channels, length)."""

    def __init__(self, shape: tuple[int, ...], outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(shape[0], 5, num_layers=2, batch_first=True, dropout=dropout)
        self.output = nn.Linear(5, outputs)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.output(self.lstm(series.transpose(1, 2))[0][:, -1])


class RecurrentWithDropout(Recurrent):
    """Dropout inside torch's layer, which draws from the global generator."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs, dropout=0.5)


class Tied(nn.Module):
    """A language model whose embedding is also the matrix of its output."""

    def __init__(self, shape: tuple[int, ...], outputs: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 7)
        self.middle = nn.Linear(7, 7)
        self.output = nn.Linear(7, outputs)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.middle(self.embedding(tokens))))


class Frozen(nn.Module):
    """A fixed layer with batch norm below a head that is trained."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.body = nn.Linear(shape[0] * shape[1], 9).requires_grad_(False)
        self.norm = nn.BatchNorm1d(9).requires_grad_(False)
        self.head = nn.Linear(9, outputs)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.body(series.flatten(1)))))
