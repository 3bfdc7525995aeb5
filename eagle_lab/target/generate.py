"""The targets that are made on the spot: `tiny` (random weights) and `known_acceptance` (analytic). Both are Llamas."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from eagle_lab.config.files import write_json, write_text

V, H, I, L, HEADS, KV_HEADS, D = 512, 64, 128, 8, 4, 2, 16  # noqa: E741
PAD, TURN, END = 0, 1, 2
SPECIAL = ["<|pad|>", "<|turn|>", "<|end|>"]
END_WEIGHT = 5.0
"""Of tiny's end token: sampled at temperature 1, two of three turns then end within 64 tokens."""
TEMPLATE = (
    "{% for message in messages %}{{ '<|turn|>' + message['role'] + '\\n' + message['content'] + '<|end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% endif %}"
)
CORPUS = """user assistant system
What is the largest planet, and how many moons does it have? Explain why the sky looks blue at noon but red at sunset.
Write a short story about a river that flows through three villages before it reaches the northern sea.
Could you please describe how a steam engine turns heat into motion? Compare bread recipes from Italy, Japan and Kenya.
Translate the following sentence, then summarise each paragraph with exactly one word. Give me five good reasons.
def quicksort(values): return values if len(values) < 2 else [x for x in values[1:] if x <= values[0]] + [0, 1, 2, 3]
"""


def write_tiny(into: Path, seed: int) -> None:
    """Random weights, so random text; the end token is likely enough for most sampled turns to end within 64 tokens.

    Dimension 0 of the residual stream is constant: no layer writes to it, and lm_head's end row reads it.
    """
    g = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, scale: float) -> Tensor:
        return torch.randn(rows, columns, generator=g) * scale

    # 0.25 = 2 / sqrt(H): each layer adds about as much as is there, and logits have a standard deviation of 2
    weights = {"model.embed_tokens.weight": normal(V, H, 1.0), "lm_head.weight": normal(V, H, 0.25)}
    for i in range(L):
        layer = _layer(i, normal(H, HEADS * D, 0.25), normal(H, I, 0.25), lambda r, c: normal(r, c, 0.25))
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            layer[f"model.layers.{i}.{name}.weight"][0] = 0.0
        weights |= layer
    weights["model.embed_tokens.weight"][:, 0] = 8.0
    weights["lm_head.weight"][END, 0] = END_WEIGHT
    _write(into, weights)


def write_known_acceptance(into: Path, seed: int) -> None:
    """next(t) = t + 1 mod V, with probability 0.98 at temperature 1.

    The embedding E[t] holds the cosine and sine of 2 pi f t / V for H / 2 frequencies f (0 among them), so E[t + 1] =
    R E[t] with a rotation R. All layers add zero: every aux state of token t is E[t], with |E[t]|^2 = H / 2, and the
    final norm (weight 1) makes it sqrt(2) E[t]. lm_head row t + 1 is E[t] / 4: the right logit is 11.3 = sqrt(2) H / 8,
    the others are around 0. Larger logits would underflow to ties in a draft tree.
    """
    g = torch.Generator().manual_seed(seed)
    others = torch.randperm(V // 2 - 1, generator=g)[: H // 2 - 1] + 1
    frequencies = torch.cat([torch.zeros(1), others]).double()
    angles = 2 * math.pi * torch.arange(V).double()[:, None] * frequencies / V
    embed = torch.stack([angles.cos(), angles.sin()], dim=-1).reshape(V, H).float()
    weights = {"model.embed_tokens.weight": embed, "lm_head.weight": embed.roll(1, 0) / 4}
    for i in range(L):
        # queries, keys and gates are random: the attention runs, only what it adds is zero
        weights |= _layer(
            i, torch.zeros(H, HEADS * D), torch.zeros(H, I), lambda r, c: torch.randn(r, c, generator=g) / 5
        )
    _write(into, weights)


def _layer(i: int, o_proj: Tensor, down_proj: Tensor, normal: Callable[[int, int], Tensor]) -> dict[str, Tensor]:
    tensors = {
        "input_layernorm": torch.ones(H),
        "self_attn.q_proj": normal(HEADS * D, H),
        "self_attn.k_proj": normal(KV_HEADS * D, H),
        "self_attn.v_proj": normal(KV_HEADS * D, H),
        "self_attn.o_proj": o_proj,
        "post_attention_layernorm": torch.ones(H),
        "mlp.gate_proj": normal(I, H),
        "mlp.up_proj": normal(I, H),
        "mlp.down_proj": down_proj,
    }
    return {f"model.layers.{i}.{name}.weight": t for name, t in tensors.items()}


def _write(into: Path, weights: dict[str, Tensor]) -> None:
    weights["model.norm.weight"] = torch.ones(H)
    save_file({name: t.contiguous() for name, t in weights.items()}, into / "model.safetensors", {"format": "pt"})
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": V,
        "hidden_size": H,
        "intermediate_size": I,
        "num_hidden_layers": L,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": D,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    write_json(into / "config.json", config | tokens)
    write_json(into / "generation_config.json", tokens)
    _write_tokenizer(into)


def _write_tokenizer(into: Path) -> None:
    """Byte-level BPE of exactly V tokens: the special ones, the bytes, and merges from CORPUS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=V,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    assert tokenizer.get_vocab_size() == V, f"{tokenizer.get_vocab_size()} tokens: CORPUS gives too few merges"
    tokenizer.save(str(into / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[END], "pad_token": SPECIAL[PAD]}
    write_json(into / "tokenizer_config.json", {**config, "model_max_length": 2048})
    write_text(into / "chat_template.jinja", TEMPLATE)
