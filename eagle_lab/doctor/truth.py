"""What a server should have answered, by our own code: the target in float32, the head replayed over its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eagle_lab.config.schema import Config, ServerKind
from eagle_lab.doctor.replay import Replayed, replay
from eagle_lab.draft.head import Head
from eagle_lab.draft.unroll import unroll
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.model import TargetModel
from eagle_lab.train.feed import document

if TYPE_CHECKING:
    from eagle_lab.doctor.head_directory import HeadDirectory
    from eagle_lab.doctor.served import Served

RANDOM_SEED = 0


def target_model(config: Config, target: LocatedTarget, aux_layers: list[int]) -> TargetModel:
    """In float32, on the GPU where the server was on one."""
    gpu = config.server.kind is not ServerKind.cpu and torch.cuda.is_available()
    return TargetModel(target, aux_layers, device="cuda" if gpu else "cpu", dtype="float32")


def replayed(head: Head, model: TargetModel, requests: Sequence[dict[str, Any]], num_steps: int) -> list[Replayed]:
    """The requests' acceptance histograms as our own head code predicts them, in float32."""
    return replay(
        head,
        requests,
        num_steps,
        lambda ids, start: document(model, ids, start, model.device),
        model.greedy,
    )


class Truth:
    """Of one head, its target and what a server said; each part is made when it is first asked for."""

    def __init__(
        self, config: Config, target: LocatedTarget, head: HeadDirectory, aux_layers: list[int], served: Served
    ) -> None:
        """aux_layers: canonical."""
        self.config, self.target, self.head, self.aux_layers, self.served = config, target, head, aux_layers, served

    @cached_property
    def model(self) -> TargetModel:
        return target_model(self.config, self.target, self.aux_layers)

    @cached_property
    def embed(self) -> Tensor:
        """The target's, as data: as a parameter it would become one of the head's."""
        return self.model.embed_weight.detach()

    @cached_property
    def streams(self) -> Tensor:
        """[n, S, H] float32 on the CPU: what enters layer k = 0..n-1 at each of the shown prompt's tokens."""
        return self.model.streams(self.served.shown).float().cpu()

    @cached_property
    def ours(self) -> Head:
        """The head in float32, whoever trained it. Raises Skipped for one that is not of our shape."""
        shape, tensors = self.head.as_ours()
        return Head.with_tensors(shape, tensors, self.embed)

    @cached_property
    def replayed(self) -> list[Replayed]:
        return self._replayed(self.ours)

    @cached_property
    def proposals(self) -> tuple[Tensor, Tensor]:
        """[N] each, over all served positions: the draft id that the first step proposes, the target's next token."""
        drafts, tokens = [], []
        for request in self.served.requests:
            ids, start = [*request["prompt_ids"], *request["token_ids"]], len(request["prompt_ids"])
            batch = document(self.model, ids, start, self.model.device)
            with torch.no_grad():
                drafts.append(self.ours.lm_head(next(unroll(self.ours, batch, 1))).argmax(-1))
            tokens.append(batch.teacher_top)
        return torch.cat(drafts), torch.cat(tokens)

    def shifted(self, by: int) -> list[Replayed] | None:
        """With the states of the layers `by` further; None where there are none."""
        layers = [k + by for k in self.aux_layers]
        if layers[0] < 1 or layers[-1] >= self.target.num_hidden_layers:
            return None
        self.model.read(layers)
        try:
            return self._replayed(self.ours)
        finally:
            self.model.read(self.aux_layers)

    @cached_property
    def random(self) -> list[Replayed]:
        """By a head of the same sizes and spread whose matrices were never trained."""
        head = Head.with_tensors(self.ours.shape, dict(self.ours.state_dict()), self.embed)
        generator = torch.Generator().manual_seed(RANDOM_SEED)
        with torch.no_grad():
            for weight in (p for p in head.parameters() if p.ndim > 1):
                weight.copy_(torch.randn(weight.shape, generator=generator) * float(weight.std()))
        return self._replayed(head)

    def _replayed(self, head: Head) -> list[Replayed]:
        steps = self.served.launch.spec.num_steps
        assert steps is not None
        return replayed(head, self.model, self.served.requests, steps)
