from __future__ import annotations

import torch
from transformers import AutoTokenizer

from eagle_lab.target.generate import END, V
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.model import TargetModel


def test_the_tokenizer_round_trips_any_text(tiny: LocatedTarget) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.path)
    assert len(tokenizer) == V
    assert tokenizer.eos_token_id == END
    for text in ("What is the largest planet?", "né 日本\n\t 12  x", ""):
        assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_the_template_opens_the_assistant_turn(tiny: LocatedTarget) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.path)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<|turn|>user\na<|end|>\n<|turn|>assistant\nb<|end|>\n<|turn|>assistant\n"
    assert tokenizer(text).input_ids.count(END) == 2


def test_known_acceptance_counts_up_from_every_token(known: LocatedTarget) -> None:
    model = TargetModel(known, [2, 4, 5])
    ids = torch.arange(V)[:, None]
    captured = model.capture(ids)
    p = (captured.last[:, 0] @ model.lm_head_weight.T).softmax(-1)
    assert torch.equal(p.argmax(-1), (torch.arange(V) + 1) % V)
    # moderate: larger logits would tie in a draft tree, smaller ones would not survive bfloat16
    assert 0.95 < p.max(-1).values.min() < 0.995
    assert model.greedy([309, 308, 509], 5) == [510, 511, 0, 1, 2]


def test_known_acceptance_survives_bfloat16(known: LocatedTarget) -> None:
    model = TargetModel(known, [2, 4, 5], dtype="bfloat16")
    ids = torch.arange(V)[:, None]
    logits = model.capture(ids).last[:, 0] @ model.lm_head_weight.T
    assert torch.equal(logits.argmax(-1), (torch.arange(V) + 1) % V)


def test_tiny_ends_its_turns(tiny: LocatedTarget) -> None:
    """The end token has a few per cent everywhere, so that sampled turns end and nothing else is drowned by it."""
    model = TargetModel(tiny, [2, 4, 5])
    ids = torch.randint(3, V, (16, 24), generator=torch.Generator().manual_seed(0))
    p = (model.capture(ids).last @ model.lm_head_weight.T).softmax(-1)
    assert 0.01 < p[..., END].mean() < 0.1
    assert p.argmax(-1).unique().numel() > 100
