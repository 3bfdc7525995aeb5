from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.schema import Config, TargetFacts
from eagle_lab.draft.shape import HeadShape, head_shape
from eagle_lab.plan.resolve import checked, resolved


def config_of(*overrides: str) -> Config:
    load.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return load.load(compose("plan", list(overrides)))


def shape_of(config: Config) -> HeadShape:
    return head_shape(config.draft, config.target.facts.__dict__, 3)


def test_kimi_k2_resolves_to_the_known_layers_and_width() -> None:
    config = config_of("target=kimi_k2")
    found = resolved(config, config.target.facts, shape_of(config))
    assert found["aux layers, canonical"] == [2, 30, 58]
    assert found["aux layers, SGLang ids"] == [1, 29, 57]
    assert found["fused width"] == 21504


def test_a_llama_gets_its_layers_one_lower() -> None:
    config = config_of("target=smollm2_135m", "spec=chain_5")
    found = resolved(config, config.target.facts, shape_of(config))
    assert found["aux layers, SGLang ids"] == [1, 14, 26]
    assert found["served with"] == "EAGLE3"
    assert found["speculation"] == "chain: num_steps 4, eagle_topk 1, num_draft_tokens 5"


def test_a_missing_fact_is_named() -> None:
    with pytest.raises(LabError, match="unknown hidden_size"):
        checked(
            config_of("target=tiny", "draft.vocab_size=64"),
            TargetFacts(architecture="X", num_hidden_layers=8, vocab_size=9, num_attention_heads=4),
        )
