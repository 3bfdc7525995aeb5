"""The exact head of target=known_acceptance, derived from that target's embeddings and lm_head.

The target maps t to t + 1, and its embeddings turn by one rotation per step: E[t + 1] = R E[t]. Every aux state of
token t is E[t], and lm_head's row t + 1 reads E[t]. So the head must hand R E[t] on: fc takes the first aux state, the
attention adds nothing, and the MLP adds (R - I) x. A SwiGLU is linear where its gate is constant, and the constant
dimension of E makes it so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_lab.draft.shape import HeadShape

GATE = 10.0
"""Any value far above 0 would do: silu is then nearly the identity."""


def kept_ids(vocab_size: int, skip: int) -> Tensor:
    """Target ids of the draft vocabulary, int64 [Vd]: all, or those with t % skip != 0."""
    ids = torch.arange(vocab_size)
    return ids[ids % skip != 0] if skip else ids


def analytic_head(embed: Tensor, lm_head: Tensor, shape: HeadShape, skip: int) -> dict[str, Tensor]:
    """The head's whole state dict (export names) from the target's embed [V, H] and lm_head [V, H].

    It predicts t + 2 from the state of t at step 0, t + 3 at step 1 and so on, except tokens with t % skip == 0, which
    its vocabulary lacks. shape.draft_vocab_size must be len(kept_ids(V, skip)) and intermediate_size at least H.
    """
    hidden, size, dim = shape.hidden_size, shape.intermediate_size, shape.head_dim
    ids = kept_ids(len(embed), skip)
    assert shape.draft_vocab_size == len(ids), f"draft vocab {shape.draft_vocab_size}, {len(ids)} tokens are kept"
    assert size >= hidden, f"intermediate size {size} is below the hidden size {hidden}"
    e = embed.double()
    rotation = torch.linalg.lstsq(e, e.roll(-1, 0), driver="gelsd").solution.T
    constant = torch.linalg.lstsq(e, torch.ones(len(e), 1, dtype=e.dtype), driver="gelsd").solution.T
    # post_attention_layernorm multiplies each row of E by the same number
    scale = e[0].square().mean().add(shape.rms_norm_eps).rsqrt()
    gate, up, down = torch.zeros(size, hidden), torch.zeros(size, hidden), torch.zeros(hidden, size)
    gate[:hidden] = GATE / scale * constant
    up[:hidden] = torch.eye(hidden)
    silu = torch.nn.functional.silu(torch.tensor(GATE, dtype=e.dtype))
    down[:, :hidden] = (rotation - torch.eye(hidden)) / (silu * scale)
    layer = {
        "self_attn.q_proj": torch.zeros(shape.num_attention_heads * dim, 2 * hidden),
        "self_attn.k_proj": torch.zeros(shape.num_key_value_heads * dim, 2 * hidden),
        "self_attn.v_proj": torch.zeros(shape.num_key_value_heads * dim, 2 * hidden),
        "self_attn.o_proj": torch.zeros(hidden, shape.num_attention_heads * dim),
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": down,
        **{name: torch.ones(hidden) for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")},
    }
    return {
        "fc.weight": torch.cat([torch.eye(hidden), torch.zeros(hidden, (shape.num_aux - 1) * hidden)], dim=1),
        **{f"midlayer.{name}.weight": tensor for name, tensor in layer.items()},
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": lm_head[ids].clone(),
        "d2t": ids - torch.arange(len(ids)),
        "t2d": torch.zeros(len(embed), dtype=torch.bool).index_fill(0, ids, True),
    }
