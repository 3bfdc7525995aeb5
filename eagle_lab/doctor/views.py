"""What SGLang and vLLM each make of a head: every field of config.json that counts, every tensor."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from eagle_lab.config.aux_layers import default_layers
from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.checks import biases
from eagle_lab.doctor.checks.tensors import PASSED_OVER
from eagle_lab.doctor.head_directory import known_name
from eagle_lab.draft.shape import rope_parameters
from eagle_lab.export.head_files import LAYER_TENSORS
from eagle_lab.serve.pairing import EAGLE3_HEADS

VERSIONS = {Engine.sglang: "SGLang 0.5.20", Engine.vllm: f"vLLM {vllm.VERSION}"}
INNER_IDS = f"eagle_config.{vllm.OUTER_IDS}"


class Fate(Enum):
    loaded = "loaded"
    dropped = "dropped"
    defaulted = "default"
    """It is not there; `what` stands for it."""
    overwritten = "overwritten"
    refused = "refused"


class Outcome(NamedTuple):
    fate: Fate
    what: str = ""

    def __str__(self) -> str:
        return f"{self.fate.value}: {self.what}" if self.what else self.fate.value


WITH_ITS_CLASS = Outcome(Fate.refused, "with its class")
"""Of all else, where an engine refuses the class."""


class View(NamedTuple):
    part: str
    by: dict[Engine, Outcome]

    @property
    def telling(self) -> bool:
        """Whether the engines differ, or one does not take what is there."""
        found = set(self.by.values()) - {WITH_ITS_CLASS}
        return len(found) > 1 or any(o.fate not in (Fate.loaded, Fate.defaulted) for o in found)


class Reading(NamedTuple):
    """How an engine reads one field."""

    default: str
    fate: Fate = Fate.loaded
    what: str = ""
    """Of a value that is there; empty: the value itself."""


def views(written: dict[str, Any], tensors: Iterable[str], num_hidden_layers: int) -> list[View]:
    """written: config.json as it stands; tensors: names in the files; num_hidden_layers: the target's."""
    c = {Engine.sglang: written, Engine.vllm: vllm.flattened(written)}
    tables = {
        Engine.sglang: _by_sglang(written, num_hidden_layers),
        Engine.vllm: _by_vllm(c[Engine.vllm], num_hidden_layers),
    }
    classes = {engine: _class(engine, written) for engine in Engine}
    rows = [View("architectures", classes)]
    for part in tables[Engine.sglang]:
        rows.append(View(part, {e: _field(c[e], part, tables[e][part]) for e in Engine}))
    for name in sorted(tensors):
        rows.append(View(name, {e: _tensor(e, known_name(name, e), c[e]) for e in Engine}))
    stopped = {e: WITH_ITS_CLASS for e in Engine if classes[e].fate is Fate.refused}
    return [rows[0], *(View(row.part, row.by | stopped) for row in rows[1:])]


def _class(engine: Engine, written: dict[str, Any]) -> Outcome:
    found = (vllm.flattened(written) if engine is Engine.vllm else written).get("architectures") or ["none"]
    name = str(found[0] if isinstance(found, list) else found)
    if engine is Engine.sglang:
        return Outcome(Fate.loaded if name in EAGLE3_HEADS else Fate.refused, name)
    if vllm.is_nested(written) and (fault := vllm.layout_fault(written)):
        return Outcome(Fate.refused, fault)
    name = vllm.served_class(name)
    return Outcome(Fate.loaded if name in vllm.CLASSES else Fate.refused, name)


def _by_sglang(c: dict[str, Any], n: int) -> dict[str, Reading]:
    """sglang 0.5.20: srt/models/llama_eagle3.py, llama.py; srt/model_executor/model_runner_components."""
    tied = "the embedding drafts" if c.get("tie_word_embeddings") else ""
    return {
        INNER_IDS: Reading(f"captures {default_layers(n)}", what="outputs of these layers"),
        vllm.OUTER_IDS: Reading("none", Fate.dropped),
        "eagle_config.use_aux_hidden_state": Reading("true"),
        "num_aux_hidden_states": Reading("as many as eagle_config has ids, or 3"),
        "draft_vocab_size": Reading("the target's lm_head drafts" if "draft_vocab_size" in c else "stops"),
        "tie_word_embeddings": Reading("false", what=tied),
        "target_hidden_size": Reading("hidden_size"),
        "norm_before_residual": Reading("false", Fate.dropped if c.get("norm_before_residual") else Fate.loaded),
        "norm_before_fc": Reading("false"),
        "fc_norm": Reading("use_aux_norm" if c.get("use_aux_norm") else "false"),
        "use_aux_norm": Reading("false"),
        "norm_output": Reading("false"),
        "attention_bias": Reading("false", what="of o_proj" if c.get("attention_bias") else ""),
        "mlp_bias": Reading("false", Fate.dropped if c.get("mlp_bias") else Fate.loaded),
        "bias": Reading("false", what="of fc and o_proj" if c.get("bias") else ""),
        "max_position_embeddings": Reading("2048"),
        "rope_parameters": Reading("rope_theta and rope_scaling"),
        "rope_theta": Reading("10000"),
        "hidden_act": Reading("silu"),
        "dtype": Reading("float16"),
    }


def _by_vllm(c: dict[str, Any], n: int) -> dict[str, Reading]:
    """vllm 0.33.0: files are named in eagle_lab/doctor/vllm.py."""
    guess = f"captures {default_layers(n)}"
    resized = rope_parameters(c)["rope_type"] in vllm.RESIZED_ROPES
    positions = f"{c.get('max_position_embeddings')}, " + ("raised" if resized else "requests are shortened")
    return {
        **_by_sglang({}, n),
        INNER_IDS: Reading("none", Fate.dropped, "only counted"),
        vllm.OUTER_IDS: Reading(guess, what="what enters these layers"),
        "draft_vocab_size": Reading("vocab_size"),
        "tie_word_embeddings": Reading("false", Fate.dropped if c.get("tie_word_embeddings") else Fate.loaded),
        "norm_before_residual": Reading("false"),
        "fc_norm": Reading("false"),
        "use_aux_norm": Reading("false", Fate.dropped if c.get("use_aux_norm") else Fate.loaded),
        "attention_bias": Reading("false", what="of q, k, v and o_proj" if c.get("attention_bias") else ""),
        "mlp_bias": Reading("false"),
        "bias": Reading("false", what="of o_proj" if c.get("bias") else ""),
        "max_position_embeddings": Reading("what is served", what=f"{positions} where more is served"),
        "dtype": Reading("the target's", Fate.overwritten, "by the target's"),
    }


def _field(c: dict[str, Any], part: str, reading: Reading) -> Outcome:
    value: Any = c
    for key in part.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if part == "dtype":
        value = value or c.get("torch_dtype")
    if value is None:
        return Outcome(Fate.defaulted, reading.default)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return Outcome(
        reading.fate, f"{value}, {reading.what}" if reading.what and isinstance(value, list) else reading.what or shown
    )


def _tensor(engine: Engine, name: str, c: dict[str, Any]) -> Outcome:
    """What becomes of a tensor, by the engine's name of it."""
    for_vllm = engine is Engine.vllm
    stranger = Outcome(Fate.refused if for_vllm and not name.endswith(PASSED_OVER) else Fate.dropped)
    flags = {"fc_norm.": bool(c.get("fc_norm") or (not for_vllm and c.get("use_aux_norm")))}
    inner = c.get("eagle_config")
    inner = inner if isinstance(inner, dict) else {}
    flags["input_norm."] = bool(inner.get("norm_before_fc", c.get("norm_before_fc")))
    for prefix, on in flags.items():
        if name.startswith(prefix):
            return Outcome(Fate.loaded) if on else stranger if prefix == "fc_norm." else Outcome(Fate.dropped)
    whole = c.get("draft_vocab_size") in (None, c.get("vocab_size"))
    if name == "embed_tokens.weight":
        own = c.get("target_hidden_size") not in (None, c.get("hidden_size"))
        kept = Outcome(Fate.loaded, "kept, where it differs from the target's")
        return kept if for_vllm else Outcome(Fate.loaded) if own else Outcome(Fate.overwritten, "by the target's")
    if (
        name == "lm_head.weight"
        and not for_vllm
        and (c.get("tie_word_embeddings") or c.get("draft_vocab_size") is None)
    ):
        return Outcome(Fate.overwritten, "by an embedding, or the target's")
    if name == "t2d":
        return Outcome(Fate.dropped)
    if name == "d2t":
        return Outcome(Fate.refused, "beside a whole vocabulary") if for_vllm and whole else Outcome(Fate.loaded)
    if name.endswith(".bias"):
        return Outcome(Fate.loaded if name in biases.made(c, engine) else Fate.dropped)
    layer = {n.replace("midlayer", "layers.0") for n in LAYER_TENSORS}
    of_any = name.startswith("layers.") and "layers.0." + name.split(".", 2)[-1] in layer
    return Outcome(Fate.loaded) if of_any or name in ("fc.weight", "norm.weight", "lm_head.weight") else stranger
