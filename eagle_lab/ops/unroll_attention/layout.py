"""Where the documents of a packed batch are, and the supervised positions in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where documents and rows are. All tensors are int64 on the compute device.

    doc_start [B + 1]: document b holds tokens doc_start[b] .. doc_start[b+1] - 1 of the packed batch.
    row_doc [N], row_pos [N]: document and position in it of each row; rows are sorted by document, then position.
    """

    doc_start: Tensor
    row_doc: Tensor
    row_pos: Tensor

    def to(self, device: torch.device) -> Layout:
        moved = Layout(*(sent(t, device) for t in (self.doc_start, self.row_doc, self.row_pos)))
        moved.__dict__["total"] = self.total  # read here, where it is at hand: on a GPU reading it waits
        return moved

    @cached_property
    def total(self) -> int:
        """Tokens of all documents."""
        return int(self.doc_start[-1])

    @cached_property
    def row_first(self) -> Tensor:
        """[N] the first token of each row's document."""
        return self.doc_start[self.row_doc]

    @cached_property
    def row_token(self) -> Tensor:
        """[N] the token of each row: the last one that it sees. Ascending."""
        return self.row_first + self.row_pos

    @cached_property
    def row_begin(self) -> Tensor:
        """[T] how many rows are at tokens below t: the first row that can see t."""
        return torch.searchsorted(self.row_token, self._tokens)

    @cached_property
    def row_end(self) -> Tensor:
        """[T] how many rows are of documents that start at t or before: no later row can see t."""
        return torch.searchsorted(self.row_first, self._tokens, right=True)

    @cached_property
    def _tokens(self) -> Tensor:
        return torch.arange(self.total, device=self.doc_start.device)

    @cached_property
    def padded_tokens(self) -> Tensor:
        """[B, S] index into the packed tokens; entries past a document's end repeat its last token."""
        lengths = self.doc_start.diff()
        at = torch.arange(int(lengths.max()), device=lengths.device)
        return self.doc_start[:-1, None] + torch.minimum(at[None], lengths[:, None] - 1)

    @cached_property
    def padded_rows(self) -> tuple[Tensor, Tensor]:
        """[B, Q] index into the rows (0 where there is none) and [N] flat index back into B * Q."""
        counts = torch.bincount(self.row_doc, minlength=self.doc_start.numel() - 1)
        first = counts.cumsum(0) - counts
        width = int(counts.max())
        at = torch.arange(width, device=counts.device)
        index = torch.where(at[None] < counts[:, None], first[:, None] + at[None], 0)
        back = self.row_doc * width + torch.arange(self.row_doc.numel(), device=counts.device) - first[self.row_doc]
        return index, back


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device. From pinned memory: a copy from other memory waits until the GPU has done all work before it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
