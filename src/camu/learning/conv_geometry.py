"""The sizes of a convolution with 2x2 max-pooling, and the views that make it a matrix product.

The images are laid out with the sample as the last, contiguous index, so that cutting them into
windows is copying long runs. A window is as wide as the image and as high as the inputs of one row
of pooling cells; its columns come first, so the inputs of neighbouring cells are a slice of it and
one small matrix maps any such slice to the four candidates of its cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Geometry:
    """The sizes of one convolution + pooling stage."""

    channels: int
    outputs: int
    kernel: int
    padding: int
    height: int
    width: int

    @property
    def padded(self) -> tuple[int, int]:
        """The rows and columns of the padded input."""
        return self.height + 2 * self.padding, self.width + 2 * self.padding

    @property
    def pooled(self) -> tuple[int, int]:
        """The rows and columns of pooling cells."""
        rows, columns = self.padded
        return (rows - self.kernel + 1) // 2, (columns - self.kernel + 1) // 2

    @property
    def block(self) -> int:
        """The pooling cells that share a matrix product: two where it would be small else."""
        return 2 if self.channels == 1 and self.pooled[1] % 2 == 0 else 1

    @property
    def blocks_in_row(self) -> int:
        """The matrix products for one row of cells."""
        return self.pooled[1] // self.block

    @property
    def window(self) -> tuple[int, int]:
        """The rows and columns of the inputs of one row of cells."""
        return self.kernel + 1, 2 * self.pooled[1] + self.kernel - 1

    @property
    def column(self) -> int:
        """The inputs in one column of a window."""
        return self.channels * self.window[0]

    @property
    def taps(self) -> int:
        """The inputs of one window."""
        return self.window[1] * self.column

    @property
    def block_taps(self) -> int:
        """The inputs of one block of cells."""
        return (2 * self.block + self.kernel - 1) * self.column

    @property
    def cells(self) -> tuple[int, int, int]:
        """The shape of the pooled output of a sample: (column, channel, row)."""
        return self.pooled[1], self.outputs, self.pooled[0]

    def buffer(self, samples: int) -> tuple[int, ...]:
        """The shape of an input buffer (channel, row, column, sample); its border is padding."""
        return self.channels, *self.padded, samples

    def interior(self, buffer: Tensor) -> Tensor:
        """The part of an input buffer inside the padding."""
        pad = self.padding
        return buffer[:, pad : pad + self.height, pad : pad + self.width]

    def windows(self, buffer: Tensor) -> Tensor:
        """A view of all windows: (column, channel, row, row of cells, sample)."""
        rows, columns = self.window
        return _rows_of_windows(buffer, (columns, self.channels, rows, self.pooled[0]), 0)

    def blocks(self, taps: Tensor) -> Tensor:
        """View the inputs of each block of cells: overlapping slices (block, tap, place)."""
        places = taps.shape[1]
        return taps.as_strided(
            (self.blocks_in_row, self.block_taps, places),
            (2 * self.block * self.column * places, places, 1),
        )

    def kernel_view(self, matrix: Tensor) -> Tensor:
        """The places of the kernel in the matrix of a block: (2, 2, cell, out, in, k, k)."""
        # Moving one candidate down, right or one cell on also moves the kernel in the window.
        plane = self.outputs * self.block_taps
        return matrix.as_strided(
            (2, 2, self.block, self.outputs, self.channels, self.kernel, self.kernel),
            (
                2 * self.block * plane + 1,
                self.block * plane + self.column,
                plane + 2 * self.column,
                self.block_taps,
                self.window[0],
                1,
                self.column,
            ),
        )

    def expand(self, weight: Tensor) -> Tensor:
        """The matrix that maps the inputs of a block to the four candidates of its cells."""
        matrix = torch.zeros(4 * self.block * self.outputs, self.block_taps)
        self.kernel_view(matrix).copy_(weight)
        return matrix

    def collapse(self, matrix: Tensor) -> Tensor:
        """The adjoint of ``expand``."""
        view = self.kernel_view(matrix)
        return view.reshape(4 * self.block, -1).sum(dim=0).view(view.shape[3:])

    def by_cell(self, image: Tensor) -> Tensor:
        """View the pooled output (channel, row, column, sample) in the order of ``cells``."""
        return image.permute(2, 0, 1, 3)

    def folds(self, taps: Tensor, buffer: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Targets and sources whose additions carry gradients of windows back to the buffer.

        Two rows of all windows together never overlap, so each pair is one addition of views.
        """
        rows, columns = self.window
        pairs, shape = rows // 2, (columns, self.channels, 2, self.pooled[0])
        parts = taps.view(columns, self.channels, pairs, 2, self.pooled[0], buffer.shape[3])
        targets = [_rows_of_windows(buffer, shape, 2 * pair) for pair in range(pairs)]
        return targets, [parts[:, :, pair] for pair in range(pairs)]


def _rows_of_windows(buffer: Tensor, shape: tuple[int, int, int, int], first: int) -> Tensor:
    """View some rows, from ``first`` on, of all windows: neighbouring windows are two rows apart.

    The shape is (column, channel, row of the window, window).
    """
    channel, row, column, _ = buffer.stride()
    strides = (column, channel, row, 2 * row, 1)
    return buffer.as_strided((*shape, buffer.shape[3]), strides, first * row)
