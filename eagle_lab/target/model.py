"""The frozen target as the head sees it: its aux residual streams and the last hidden state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn

from eagle_lab.config.errors import LabError
from eagle_lab.target.locate import LocatedTarget

LOGITS_AT_ONCE = 128
"""Rows: 78 MB of a vocabulary of 152,000 in float32."""
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
"""How config.json files name their number."""
LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""What stands between lm_head's output and the softmax in some classes: a teacher of plain logits would be wrong."""


@dataclass(frozen=True)
class Captured:
    aux: Tensor
    """[B, S, A * H]: the streams entering the aux layers, concatenated from the lowest layer to the highest."""
    last: Tensor
    """[B, S, H]: after the final norm, the input of lm_head."""


class TargetModel:
    """A frozen Hugging Face causal LM; aux_layers are canonical ids (k = the stream entering layer k, 1..n-1).

    Raises LabError for a class that transformers does not have, whose decoder layers cannot be found, or whose logits
    are not a plain product with lm_head.
    """

    def __init__(
        self,
        located: LocatedTarget,
        aux_layers: list[int],
        device: str | torch.device = "cpu",
        dtype: str = "float32",
        device_map: str | None = None,
    ) -> None:
        """device_map: accelerate's; the layers lie on several devices then, what is captured comes to `device`."""
        self.located = located
        self.device = torch.device(device)
        model = _load(located, dtype, device_map)
        self.model: Any = (model if device_map else model.to(self.device)).eval().requires_grad_(False)
        self.decoder = _decoder(self.model, located)
        self._streams: dict[int, Tensor] = {}
        self._alone = Lock()
        self._hooks: list[Any] = []
        self.read(aux_layers)

    def read(self, aux_layers: list[int]) -> None:
        """Captures these layers' states from now on."""
        assert aux_layers == sorted(set(aux_layers)), aux_layers
        for hook in self._hooks:
            hook.remove()
        layers = self.decoder.layers
        self._hooks = [layers[k].register_forward_pre_hook(self._keep(k), with_kwargs=True) for k in aux_layers]
        self.aux_layers = aux_layers

    def _keep(self, k: int) -> Any:
        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._streams[k] = args[0] if args else kwargs["hidden_states"]

        return hook

    @contextmanager
    def _pass(self) -> Iterator[None]:
        """Around a pass of the decoder: the hooks write to one place, and batches are made by a thread beside the
        held-out pass. Unlocked, one took the other's streams: an error where the shapes differed, wrong states else.
        """
        with self._alone:
            try:
                yield
            finally:
                self._streams.clear()

    # not inference_mode: its tensors cannot be saved for the head's backward pass
    @torch.no_grad()
    def capture(self, input_ids: Tensor) -> Captured:
        """One pass over rows padded on the right, input_ids int [B, S].

        Only the A streams are kept, not all n + 1, and no logits are computed. What stands at padding is meaningless,
        and no token sees it, since it comes after all of them: hence no mask, with which attention would be slower.
        """
        with self._pass():
            last = self.decoder(input_ids=input_ids, use_cache=False).last_hidden_state
            streams = [self._streams[k].to(self.device) for k in self.aux_layers]
            return Captured(torch.cat(streams, dim=-1), last.to(self.device))

    @torch.no_grad()
    def streams(self, ids: list[int]) -> Tensor:
        """[n, S, H]: what enters each decoder layer k = 0..n-1 at these tokens; layer 0's are the embeddings."""
        asked = torch.tensor([ids], device=self.device)
        with self._pass():
            states = self.decoder(input_ids=asked, use_cache=False, output_hidden_states=True).hidden_states
        return torch.cat([state.to(self.device) for state in states[: len(self.decoder.layers)]])

    @cached_property
    def lm_head_weight(self) -> Tensor:
        """[V, H]; the embeddings themselves in a tied model."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight.to(self.device)

    @cached_property
    def embed_weight(self) -> Tensor:
        """[V, H]."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.to(self.device)

    @property
    def passed_parameters(self) -> int:
        """Weights of the decoder layers that one token passes: of a mixture's experts, those that it is sent to."""
        config = self.located.config
        experts = next((config[k] for k in EXPERTS if config.get(k)), 1)
        share = config.get("num_experts_per_tok", experts) / experts
        sizes = ((name, p.numel()) for name, p in self.decoder.layers.named_parameters())
        return round(sum(size * (share if ".experts." in name else 1) for name, size in sizes))

    def init_weights(self) -> dict[str, Tensor]:
        """What a head can start from: `lm_head` [V, H], `norm` [H], and the last decoder layer's under `layer.`."""
        last = self.decoder.layers[-1].state_dict()
        return {
            "lm_head": self.lm_head_weight,
            "norm": self.decoder.norm.weight,
            **{f"layer.{name}": tensor for name, tensor in last.items()},
        }

    @torch.no_grad()
    def next_logits(self, ids: list[int]) -> Tensor:
        """[V] after these tokens, in the model's dtype."""
        with self._pass():
            last = self.decoder(input_ids=torch.tensor([ids], device=self.device), use_cache=False).last_hidden_state
        logits: Tensor = self.model.get_output_embeddings()(last[0, -1])
        return logits

    @torch.no_grad()
    def answer_logits(self, prompt_ids: list[int], token_ids: list[int]) -> Iterator[Tensor]:
        """[up to LOGITS_AT_ONCE, V] each: the logits that an answer's tokens follow from, in the model's dtype."""
        ids = torch.tensor([[*prompt_ids, *token_ids]], device=self.device)
        with self._pass():
            last = self.decoder(input_ids=ids, use_cache=False).last_hidden_state[0, len(prompt_ids) - 1 : -1]
        for part in last.split(LOGITS_AT_ONCE):
            yield self.model.get_output_embeddings()(part)

    @torch.no_grad()
    def greedy(self, prompt_ids: list[int], n: int) -> list[int]:
        """n tokens, each the most likely one, end tokens included: the reference for lossless serving."""
        ids = torch.tensor([prompt_ids], device=self.device)
        past, out = None, []
        for _ in range(n):
            with self._pass():
                step = self.decoder(input_ids=ids, past_key_values=past, use_cache=True)
            past = step.past_key_values
            ids = self.model.get_output_embeddings()(step.last_hidden_state[:, -1:]).argmax(dim=-1)
            out.append(int(ids))
        return out


def _load(located: LocatedTarget, dtype: str, device_map: str | None) -> nn.Module:
    transformers.utils.logging.disable_progress_bar()
    # the class that the checkpoint names: Auto classes know no multimodal model under causal LM
    cls = getattr(transformers, located.architecture, None)
    if cls is None:
        raise LabError(
            f"target {located.name}: transformers {transformers.__version__} has no class {located.architecture} "
            f"({located.path}/config.json). Install a release that has it; code that comes with weights is not run."
        )
    changes = {k: located.config[k] for k in LOGIT_CHANGES if located.config.get(k) not in (None, 1, 1.0)}
    if changes:
        raise LabError(
            f"target {located.name}: {located.architecture} changes its logits after lm_head ({changes}), so a head "
            "would learn from a wrong teacher. This class cannot be trained on yet."
        )
    try:
        model: nn.Module = cls.from_pretrained(located.path, dtype=getattr(torch, dtype), device_map=device_map)
    # RuntimeError: weights of other sizes than config.json says
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as e:
        raise LabError(f"target {located.name}: {located.path} does not load as {located.architecture} ({e}).") from e
    aside = sorted({str(d) for d in getattr(model, "hf_device_map", {}).values()} & {"cpu", "disk"})
    if aside and torch.cuda.is_available():
        raise LabError(
            f"target {located.name}: it does not fit on the GPUs (layers would go to {', '.join(aside)}). Use more of "
            "them, or trainer.capture=stored on a machine that holds it."
        )
    return model


def _decoder(model: Any, located: LocatedTarget) -> Any:
    """The text decoder: the module whose `layers` are the n decoder layers and whose output is normed."""
    decoder = model.get_decoder()
    layers, norm = getattr(decoder, "layers", None), getattr(decoder, "norm", None)
    head = model.get_output_embeddings()
    found = len(layers) if isinstance(layers, nn.ModuleList) else None
    if found != located.num_hidden_layers or norm is None or head is None or getattr(head, "bias", None) is not None:
        raise LabError(
            f"target {located.name}: {located.architecture} has no decoder of the known kind (`layers` of "
            f"{located.num_hidden_layers} decoder layers: {found} found; a final `norm`; an lm_head without bias), so "
            "its aux states cannot be captured. Llama-like classes (Llama, Qwen, DeepSeek, Gemma 3) can be."
        )
    return decoder
