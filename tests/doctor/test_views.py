"""What each engine is said to make of a head's fields and tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.views import Fate, View, views
from tests.doctor.corpus import changed
from tests.doctor.corpus_vllm import older_flag, speculators
from tests.doctor.heads import Made

LAYERS = 8


def seen(good: Made, into: Path, plant: Callable[..., object]) -> dict[str, View]:
    head = changed(good[1], into, plant)
    config = json.loads((head / "config.json").read_text())
    return {v.part: v for v in views(config, load_file(head / "model.safetensors"), LAYERS)}


def fates(view: View) -> tuple[Fate, Fate]:
    return view.by[Engine.sglang].fate, view.by[Engine.vllm].fate


def test_our_head(good: Made, tmp_path: Path) -> None:
    rows = seen(good, tmp_path, lambda c, t: None)
    assert fates(rows["architectures"]) == (Fate.loaded, Fate.loaded)
    inner, outer = rows["eagle_config.eagle_aux_hidden_state_layer_ids"], rows["eagle_aux_hidden_state_layer_ids"]
    assert fates(inner) == (Fate.loaded, Fate.dropped)
    assert fates(outer) == (Fate.dropped, Fate.loaded)
    assert outer.by[Engine.vllm].what == "[2, 4, 5], what enters these layers"
    bare = seen(good, tmp_path / "bare", lambda c, t: c.pop("eagle_aux_hidden_state_layer_ids"))
    assert bare["eagle_aux_hidden_state_layer_ids"].by[Engine.vllm] == (Fate.defaulted, "captures [2, 4, 5]")
    assert fates(rows["t2d"]) == (Fate.dropped, Fate.dropped)
    assert not rows["fc.weight"].telling
    assert not rows["midlayer.mlp.up_proj.weight"].telling
    assert not rows["norm_output"].telling


def test_where_the_engines_part(good: Made, tmp_path: Path) -> None:
    def plant(c, t):
        older_flag(c, t)
        c.update(norm_before_residual=True, mlp_bias=True, attention_bias=True)
        t["embed_tokens.weight"] = t["fc.weight"].clone()
        t["midlayer.mlp.up_proj.bias"] = t["norm.weight"].clone()
        t["midlayer.self_attn.o_proj.bias"] = t["norm.weight"].clone()
        t["verifier_norm.weight"] = t["norm.weight"].clone()
        t["fc.bias"] = t["norm.weight"].clone()

    rows = seen(good, tmp_path, plant)
    assert fates(rows["fc_norm.0.weight"]) == (Fate.loaded, Fate.refused)
    assert fates(rows["use_aux_norm"]) == (Fate.loaded, Fate.dropped)
    assert fates(rows["norm_before_residual"]) == (Fate.dropped, Fate.loaded)
    assert fates(rows["embed_tokens.weight"]) == (Fate.overwritten, Fate.loaded)
    assert fates(rows["midlayer.mlp.up_proj.bias"]) == (Fate.dropped, Fate.loaded)
    assert fates(rows["midlayer.self_attn.o_proj.bias"]) == (Fate.loaded, Fate.loaded)
    assert fates(rows["fc.bias"]) == (Fate.dropped, Fate.dropped)
    assert fates(rows["verifier_norm.weight"]) == (Fate.dropped, Fate.refused)
    assert fates(rows["dtype"]) == (Fate.loaded, Fate.overwritten)
    assert all(rows[name].telling for name in ("dtype", "fc.bias", "attention_bias"))


def test_an_engine_that_refuses_the_class_loads_nothing(good: Made, tmp_path: Path) -> None:
    rows = seen(good, tmp_path, speculators)
    assert {v.by[Engine.sglang].fate for v in rows.values()} == {Fate.refused}
    assert rows["eagle_aux_hidden_state_layer_ids"].by[Engine.vllm].what.startswith("[2, 4, 5]")
    assert rows["norm_before_residual"].by[Engine.vllm] == (Fate.loaded, "false")
