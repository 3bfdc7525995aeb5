"""Do the tensors have the sizes that config.json states?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "shapes"
CATCHES = "Weights of other sizes than config.json says: heads, head_dim, MLP width, draft vocabulary, 2H input."
REPORTS = ("SpecForge#139", "vllm-ascend PR#15863")
NEEDS = ("head",)
LEADS_TO = ("aux width", "vocabulary map", "draft vocabulary")

SIZES = ("hidden_size", "intermediate_size", "num_attention_heads")


def look(s: Subject) -> Finding:
    if not s.given.is_llama:
        raise Skipped(f"the tensors of {s.given.architecture} are not known")
    c = s.given.config
    if odd := [n for n in SIZES if not isinstance(c.get(n), int) or c[n] < 1]:
        said = ", ".join(f"{n}={c[n]!r}" if n in c else f"no {n}" for n in odd)
        return fail(f"{said} in config.json", "whole numbers, 1 or more", "write them as the tensors have them")
    if s.given.nested and (lacking := [n for n in vllm.WITHOUT_DEFAULT if c.get(n) is None]):
        return fail(
            f"no {', '.join(lacking)} in transformer_layer_config", "its value", "vLLM has no default: write it"
        )
    h, m, heads = (c[n] for n in SIZES)
    kv, dim = c.get("num_key_value_heads") or heads, c.get("head_dim") or h // heads
    sizes = {
        "self_attn.q_proj": (heads * dim, 2 * h),
        "self_attn.k_proj": (kv * dim, 2 * h),
        "self_attn.v_proj": (kv * dim, 2 * h),
        "self_attn.o_proj": (h, heads * dim),
        "mlp.gate_proj": (m, h),
        "mlp.up_proj": (m, h),
        "mlp.down_proj": (h, m),
    }
    wanted: dict[str, tuple[int, ...]] = {f"layers.0.{n}.weight": size for n, size in sizes.items()}
    trained = s.engine is Engine.vllm or not c.get("tie_word_embeddings")
    if isinstance(c.get("draft_vocab_size"), int) and trained:
        wanted |= {"lm_head.weight": (c["draft_vocab_size"], h)}
        if c["draft_vocab_size"] != c.get("vocab_size"):
            wanted |= {"d2t": (c["draft_vocab_size"],)}
    headers = s.given.headers
    known = {n: size for n, size in wanted.items() if n in headers}
    if not known:
        raise Skipped("none of its tensors has a known name")
    for name, size in known.items():
        if headers[name].shape != size:
            turned = headers[name].shape == size[::-1]
            fix = "transpose it: torch keeps [outputs, inputs]" if turned else "correct config.json"
            return fail(f"{name} is {list(headers[name].shape)}", f"{list(size)} by config.json", fix)
    return ok(f"{len(known)} tensors as config.json says")
