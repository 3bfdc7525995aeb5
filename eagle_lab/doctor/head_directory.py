"""A head's directory as any trainer leaves it, read as far as a check asks: config, tensors' headers, slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from eagle_lab.config.errors import LabError
from eagle_lab.config.model_config import read_config, read_export
from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Skipped, Unreadable
from eagle_lab.draft.shape import HeadShape, rope_parameters
from eagle_lab.export.head_files import AGAIN, ARCHITECTURE, unpickled, weight_files

RENAMED = (
    ("midlayer", "layers.0"),
    ("aux_norm_low", "fc_norm.0"),
    ("aux_norm_mid", "fc_norm.1"),
    ("aux_norm_high", "fc_norm.2"),
)
"""sglang 0.5.20, srt/models/llama_eagle3.py: older names that it still takes."""


class Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    """As safetensors writes it: F32, BF16, I64, BOOL."""
    file: Path
    name: str
    """In the file."""


class HeadDirectory:
    """As one engine reads it. Tensors go by the names that the engine gives them: layers.0.mlp.up_proj.weight, d2t."""

    def __init__(self, path: Path, engine: Engine = Engine.sglang) -> None:
        self.path, self.engine = path, engine

    @cached_property
    def written(self) -> dict[str, Any]:
        """config.json as it stands there."""
        with _reading():
            return read_config(self.path)

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json as the engine's class sees it."""
        return vllm.flattened(self.written) if self.engine is Engine.vllm else self.written

    @property
    def nested(self) -> bool:
        """Whether the engine takes it for speculators' layout."""
        return self.engine is Engine.vllm and vllm.is_nested(self.written)

    @cached_property
    def export(self) -> dict[str, Any]:
        """What our exporter wrote beside it; empty for a head made elsewhere."""
        with _reading():
            return read_export(self.path)

    @property
    def architecture(self) -> str:
        """The class that the engine looks for."""
        found = self.config.get("architectures") or ["none"]
        name = str(found[0] if isinstance(found, list) else found)
        return vllm.served_class(name) if self.engine is Engine.vllm else name

    @property
    def is_llama(self) -> bool:
        """Whether the engine runs a Llama layer for it, whose tensors are known here."""
        return self.architecture in (vllm.LLAMA if self.engine is Engine.vllm else (ARCHITECTURE,))

    @property
    def is_model(self) -> bool:
        """Whether this is a whole language model: no EAGLE-3 class, no fc, several layers."""
        layers = {n.split(".")[1] for n in self.headers if n.startswith("layers.")}
        return not self.is_llama and "fc.weight" not in self.headers and len(layers) > 1

    @property
    def layer_ids(self) -> list[int] | None:
        """eagle_aux_hidden_state_layer_ids where SGLang looks for them, and where vLLM only counts them."""
        inner = self.config.get("eagle_config")
        ids = inner.get("eagle_aux_hidden_state_layer_ids") if isinstance(inner, dict) else None
        return ids if isinstance(ids, list) and all(type(k) is int for k in ids) else None

    @property
    def aux_norms(self) -> bool:
        """Whether the engine norms each aux state before fc; the older name is SGLang's alone."""
        older = self.engine is Engine.sglang and self.config.get("use_aux_norm")
        return bool(self.config.get("fc_norm") or older)

    @property
    def norm_before_fc(self) -> bool:
        inner = self.config.get("eagle_config")
        stated = self.config.get("norm_before_fc", False)
        return bool(inner.get("norm_before_fc", stated) if isinstance(inner, dict) else stated)

    @cached_property
    def headers(self) -> dict[str, Header]:
        """Of every tensor; no data is read from a safetensors file."""
        with _reading():
            return self._headers()

    def _headers(self) -> dict[str, Header]:
        found: dict[str, Header] = {}
        for file in weight_files(self.path):
            if file.suffix != ".safetensors":
                for name, tensor in unpickled(file).items():
                    found[known_name(name, self.engine)] = Header(tuple(tensor.shape), str(tensor.dtype), file, name)
                continue
            try:
                with safe_open(file, "pt") as part:
                    for name in part.keys():  # noqa: SIM118
                        view = part.get_slice(name)
                        found[known_name(name, self.engine)] = Header(
                            tuple(view.get_shape()), view.get_dtype(), file, name
                        )
            except (OSError, SafetensorError) as e:
                raise LabError(f"{file}: not a whole safetensors file ({e}). {AGAIN}") from e
        return found

    def tensor(self, name: str) -> Tensor:
        header = self.headers[name]
        if header.file.suffix != ".safetensors":
            whole: Tensor = unpickled(header.file)[header.name]
            return whole
        with safe_open(header.file, "pt") as file:
            read: Tensor = file.get_tensor(header.name)
            return read

    def rows(self, name: str, at: slice) -> Tensor:
        """Some of a tensor's rows; the others are not read."""
        header = self.headers[name]
        if header.file.suffix != ".safetensors":
            part: Tensor = unpickled(header.file)[header.name][at]
            return part
        with safe_open(header.file, "pt") as file:
            view: Tensor = file.get_slice(header.name)[at]
            return view

    def sample(self, name: str, rows: int = 64) -> Tensor:
        """[<= 3 * rows, ...] from its beginning, middle and end."""
        shape = self.headers[name].shape
        if not shape or (size := shape[0]) <= 3 * rows:
            return self.tensor(name)
        starts = (0, (size - rows) // 2, size - rows)
        return torch.cat([self.rows(name, slice(start, start + rows)) for start in starts])

    def as_ours(self) -> tuple[HeadShape, dict[str, Tensor]]:
        """Shape and state dict of our `Head`, whoever trained it. Raises Skipped for what our code does not compute."""
        c, headers = self.config, self.headers
        if self.architecture != ARCHITECTURE:
            raise Skipped(f"our code runs no {self.architecture}")
        odd = [n for n in headers if n.endswith(".bias")] + (["norm_before_fc"] if self.norm_before_fc else [])
        if odd:
            raise Skipped(f"our code runs no head with {', '.join(odd)}")
        if "lm_head.weight" not in headers:
            raise Skipped("it drafts with the target's lm_head")
        hidden, heads, size = c["hidden_size"], c["num_attention_heads"], c["vocab_size"]
        wide, drafted = c.get("target_hidden_size") or hidden, headers["lm_head.weight"].shape[0]
        shape = HeadShape(
            hidden_size=hidden,
            target_hidden_size=wide,
            num_aux=headers["fc.weight"].shape[1] // wide,
            intermediate_size=c["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=c.get("num_key_value_heads") or heads,
            head_dim=c.get("head_dim") or hidden // heads,
            vocab_size=size,
            draft_vocab_size=drafted,
            max_position_embeddings=c["max_position_embeddings"],
            rms_norm_eps=c["rms_norm_eps"],
            rope_parameters=rope_parameters(c),
            fc_norm=self.aux_norms,
            norm_output=bool(c.get("norm_output")),
        )
        tensors = {n.replace("layers.0.", "midlayer."): self.tensor(n) for n in headers if n != "embed_tokens.weight"}
        tensors.setdefault("d2t", torch.zeros(drafted, dtype=torch.int64))
        t2d = torch.zeros(size, dtype=torch.bool)
        t2d[tensors["d2t"] + torch.arange(drafted)] = True
        return shape, tensors | {"t2d": t2d}


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except LabError as e:
        raise Unreadable(str(e)) from e


def known_name(name: str, engine: Engine) -> str:
    """The engine's name of a tensor; vLLM's llama_eagle3.py strips no `model.` and knows one older name only."""
    if engine is Engine.vllm:
        return name.replace("midlayer.", "layers.0.")
    name = name.removeprefix("model.")
    for old, new in RENAMED:
        name = name.replace(old, new)
    return name
