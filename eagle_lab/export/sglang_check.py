"""Loads an export with SGLang's own model class and runs it once. A program of its own: SGLang keeps global state.

usage: python -m eagle_lab.export.sglang_check EXPORT_DIR TARGET_DIR INPUTS.safetensors OUTPUTS.safetensors

INPUTS: embeds [S, H] (of the tokens one further), aux [S, A*H]. OUTPUTS: logits [S, Vd] of one causal
pass, and the names of parameters that loading left untouched (they were filled with NaN before) in the metadata.
Attention itself is replaced by plain causal attention, since SGLang's needs a running engine's cache; every other
line (fc, norms, concat order, rope, fused projections, lm_head, d2t) is SGLang's.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from eagle_lab.export.head_files import unpickled, weight_files


def main(export: Path, target: Path, inputs: Path, outputs: Path) -> None:
    model, config = build(export, target)
    for parameter in model.parameters():
        parameter.data.fill_(float("nan"))
    # the names as they are in the files: what SGLang makes of them is the question
    for file in weight_files(export):
        model.load_weights((load_file(file) if file.suffix == ".safetensors" else unpickled(file)).items())
    untouched = sorted(n for n, p in model.named_parameters() if bool(p.data.isnan().any()))
    given = load_file(inputs)
    for layer in model.model.layers:
        layer.self_attn.attn = causal_attention(config)
    given = {name: tensor.to(model.model.fc.weight.dtype) for name, tensor in given.items()}
    batch = SimpleNamespace(spec_info=SimpleNamespace(hidden_states=given["aux"]))
    positions = torch.arange(len(given["embeds"]))
    with torch.no_grad():
        hidden, _ = model.model(positions, positions, batch, input_embeds=given["embeds"])
        # SGLang pads the vocabulary to a multiple of 64
        logits = hidden @ model.lm_head.weight[: config.draft_vocab_size].t()
    hot = model.hot_token_id if model.hot_token_id is not None else torch.empty(0, dtype=torch.int64)
    save_file(
        {"logits": logits.float().contiguous(), "hot_token_id": hot.contiguous()},
        outputs,
        metadata={"untouched": json.dumps(untouched)},
    )


def build(export: Path, target: Path) -> tuple[Any, Any]:
    """SGLang's draft model of this export, on the CPU, without an engine."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    stated = json.loads((export / "config.json").read_text())
    args = ServerArgs(
        model_path=str(target),
        device="cpu",
        dtype=stated.get("dtype") or stated.get("torch_dtype") or "float16",
        attention_backend="torch_native",
        speculative_draft_model_path=str(export),
    )
    set_global_server_args_for_scheduler(args)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    init_distributed_environment(
        world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=f"tcp://127.0.0.1:{port}"
    )
    initialize_model_parallel()
    draft = ModelConfig.from_server_args(args, model_path=str(export), is_draft_model=True)
    initialize_dp_attention(args, draft)
    torch.set_default_dtype(draft.dtype)
    return LlamaForCausalLMEagle3(draft.hf_config), draft.hf_config


def causal_attention(config: Any) -> Any:
    """Plain causal attention with SGLang's calling convention: flat q, k, v in, flat output."""
    heads, kv, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim

    class Causal(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            q, k, v = q.view(-1, heads, dim), k.view(-1, kv, dim), v.view(-1, kv, dim)
            k, v = (x.repeat_interleave(heads // kv, 1).transpose(0, 1) for x in (k, v))
            out = torch.nn.functional.scaled_dot_product_attention(q.transpose(0, 1), k, v, is_causal=True)
            return out.transpose(0, 1).reshape(-1, heads * dim)

    return Causal()


if __name__ == "__main__":
    main(*(Path(a) for a in sys.argv[1:5]))
