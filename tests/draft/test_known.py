"""The analytic head is right at every token and depth, and wrong exactly on the tokens that its vocabulary lacks."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import rms_norm, silu

from eagle_lab.config.schema import Draft, DraftInit, Target, TargetKind
from eagle_lab.draft.head import Head
from eagle_lab.draft.known import analytic_head, kept_ids
from eagle_lab.draft.shape import HeadShape, head_shape
from eagle_lab.ops.dispatch import OpSet
from eagle_lab.target.locate import LocatedTarget, locate
from eagle_lab.target.model import TargetModel

V, H = 512, 64


@pytest.fixture(scope="module")
def located(tmp_path_factory: pytest.TempPathFactory) -> LocatedTarget:
    target = Target(name="known_acceptance", kind=TargetKind.known_acceptance)
    return locate(target, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def target(located: LocatedTarget) -> TargetModel:
    return TargetModel(located, [2, 4, 5])


def made(located: LocatedTarget, target: TargetModel, skip: int, num_aux: int = 3) -> tuple[HeadShape, dict]:
    draft = Draft(vocab_size=len(kept_ids(V, skip)), init=DraftInit.analytic)
    shape = head_shape(draft, located.config, num_aux)
    return shape, analytic_head(target.embed_weight, target.lm_head_weight, shape, skip)


def proposals(head: dict[str, torch.Tensor], aux: torch.Tensor, steps: int) -> torch.Tensor:
    """[N, steps] proposed target ids: the head in plain torch. Its attention adds nothing (o_proj is zero)."""
    assert not head["midlayer.self_attn.o_proj.weight"].any()
    w = {k.removeprefix("midlayer.").removesuffix(".weight"): t for k, t in head.items()}
    hidden, out = aux @ w["fc"].T, []
    for _ in range(steps):
        x = rms_norm(hidden, (H,), w["post_attention_layernorm"], 1e-5)
        hidden = hidden + (silu(x @ w["mlp.gate_proj"].T) * (x @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
        best = (rms_norm(hidden, (H,), w["norm"], 1e-5) @ w["lm_head"].T).argmax(-1)
        out.append(best + head["d2t"][best])
    return torch.stack(out, dim=1)


@pytest.mark.parametrize("num_aux", [2, 3])
@pytest.mark.parametrize("skip", [0, 2, 5])
def test_right_everywhere_but_on_the_skipped_tokens(
    located: LocatedTarget, target: TargetModel, skip: int, num_aux: int
) -> None:
    _, head = made(located, target, skip, num_aux)
    ids = torch.arange(V)[:, None]
    aux = target.capture(ids).aux[:, 0, : num_aux * H]
    # 15 steps: the deepest chain that the shipped specs ask for
    proposed = proposals(head, aux, steps=15)
    truth = (ids + 2 + torch.arange(15)) % V
    expected = truth % skip != 0 if skip else torch.ones_like(truth, dtype=torch.bool)
    assert torch.equal(proposed == truth, expected)


def test_names_and_shapes_are_the_exports(located: LocatedTarget, target: TargetModel) -> None:
    shape, weights = made(located, target, skip=5)
    head = Head(shape, OpSet())
    head.load_state_dict(weights)
    assert weights["d2t"].dtype == torch.int64
    assert weights["t2d"].dtype == torch.bool
    assert torch.equal(torch.arange(409) + weights["d2t"], weights["t2d"].nonzero()[:, 0])
    assert shape.draft_vocab_size == 409


def test_sizes_that_do_not_fit(located: LocatedTarget, target: TargetModel) -> None:
    shape = head_shape(Draft(vocab_size=512), located.config, 3)
    with pytest.raises(AssertionError, match="409 tokens are kept"):
        analytic_head(target.embed_weight, target.lm_head_weight, shape, 5)
