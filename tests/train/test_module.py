from __future__ import annotations

import pytest
import torch

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Loss, LossKind, OovPolicy, Optim, TeacherMass
from eagle_lab.config.schema_training import OPTIMIZERS
from eagle_lab.ops.dispatch import op_set
from eagle_lab.ops.unroll_attention.layout import Layout
from eagle_lab.train.feed import Feed, Online
from eagle_lab.train.metrics import StepCounts
from eagle_lab.train.module import HeadModule
from eagle_lab.train.optimizer import build_optimizer
from tests.draft.conftest import random_head
from tests.train.conftest import dataset_of


def module_of(target, **loss):
    return HeadModule(random_head(), target.lm_head_weight, Loss(unroll_steps=3, **loss), Optim(), total_steps=10)


def feed_of(target, data):
    return Feed(data.rows, Online(target, data.rows, torch.device("cpu")), torch.device("cpu"))


def gradients(module, batch):
    module.zero_grad()
    loss, counts = module.forward_steps(batch)
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in module.head.named_parameters() if p.grad is not None}, counts


def test_the_loss_is_a_mean_over_supervised_rows_so_prompts_do_not_scale_it(target):
    """A row repeated twice in a batch has the loss and gradient of one: the normaliser counts rows, not positions."""
    data = dataset_of([(6, 9), (6, 9)], holdout=0)
    module = module_of(target)
    one, grads_one, _ = gradients(module, feed_of(target, data).batch([0]))
    two, grads_two, _ = gradients(module, feed_of(target, data).batch([0, 0]))
    torch.testing.assert_close(one, two)
    for name in grads_one:
        torch.testing.assert_close(grads_one[name], grads_two[name], atol=1e-6, rtol=1e-4)


def test_loss_equals_the_formula_written_out(target, dataset):
    module = module_of(target, step_decay=0.5)
    batch = feed_of(target, dataset).batch([0, 1, 2])
    loss, _, counts = gradients(module, batch)
    from eagle_lab.draft.unroll import unroll

    head, wanted = module.head, 0.0
    ids = head.target_ids(torch.arange(head.shape.draft_vocab_size))
    full = batch.teacher_hidden @ target.lm_head_weight.T
    p = full[:, ids].softmax(-1)
    known = torch.isin(full.argmax(-1), ids)
    for step, hidden in enumerate(unroll(head, batch, 3)):
        log_q = (hidden @ head.lm_head.weight.T).log_softmax(-1)
        terms = [
            -(p[r + step] * log_q[r]).sum() for r in range(len(log_q)) if batch.steps_left[r] > step and known[r + step]
        ]
        wanted = wanted + 0.5**step * torch.stack(terms).mean()
        assert counts.trained[step] == len(terms)
    torch.testing.assert_close(loss, wanted.detach())


def test_positions_whose_teacher_is_outside_the_draft_vocab(target, dataset):
    batch = feed_of(target, dataset).batch([0, 1, 2])
    masked = gradients(module_of(target), batch)[2]
    trained = gradients(module_of(target, oov=OovPolicy.trained), batch)[2]
    outside = int((~module_of(target).head.t2d[batch.teacher_top]).sum())
    assert outside > 0
    assert trained.trained[0] - masked.trained[0] == outside
    assert torch.equal(trained.rows, masked.rows)  # accuracies count every supervised row either way


def test_a_batch_in_which_nothing_is_supervised_gives_zero_not_nan(target):
    data = dataset_of([(4, 1)], holdout=0)
    loss, grads, _ = gradients(module_of(target), feed_of(target, data).batch([0, 0]))
    assert loss == 0
    assert all(torch.isfinite(g).all() for g in grads.values())


@pytest.mark.parametrize("kind", LossKind)
@pytest.mark.parametrize("mass", TeacherMass)
def test_the_triton_ops_train_the_same_module(target, dataset, kind, mass):
    """In triton's interpreter: loss, every gradient, the counts, and what a checkpoint would hold."""
    batch = feed_of(target, dataset).batch([0, 1, 2])
    reference = module_of(target, kind=kind, teacher=mass)
    fused = module_of(target, kind=kind, teacher=mass)
    fused.head.ops = op_set("triton", torch.device("cpu"))
    assert fused.state_dict().keys() == reference.state_dict().keys()
    loss, grads, counts = gradients(reference, batch)
    found, found_grads, found_counts = gradients(fused, batch)
    torch.testing.assert_close(found, loss, atol=1e-5, rtol=1e-5)
    assert found_grads.keys() == grads.keys()
    for name, wanted in grads.items():
        torch.testing.assert_close(found_grads[name], wanted, atol=2e-5 * float(1 + wanted.abs().max()), rtol=1e-3)
    for name, wanted in counts.summary().items():
        assert found_counts.summary()[name] == pytest.approx(wanted, abs=1e-5)


def test_a_charged_teacher_pays_for_what_it_holds_outside(target, dataset):
    batch = feed_of(target, dataset).batch([0, 1, 2])
    kept = gradients(module_of(target), batch)[2].summary()
    charged = gradients(module_of(target, teacher=TeacherMass.charged), batch)[2].summary()
    assert charged["acceptance_0"] < kept["acceptance_0"]
    assert charged["accuracy_0"] == kept["accuracy_0"]


def test_accuracies_are_marginal_and_cumulative():
    counts = StepCounts(2)
    valid = torch.tensor([[True, True, True, True], [True, True, True, False]])
    hit = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0]]).bool()
    counts.add(valid, hit, torch.full((2, 4), 0.5), torch.ones(2, 4), valid)
    found = counts.summary()
    assert found["accuracy_0"] == 0.5
    assert found["accuracy_1"] == pytest.approx(2 / 3)
    assert found["cumulative_1"] == pytest.approx(1 / 3)
    assert found["proxy_accept_length"] == pytest.approx(1 + 0.5 + 1 / 3)
    assert found["loss_1"] == 1.0


@pytest.mark.parametrize("target", OPTIMIZERS)
def test_every_legal_optimiser_trains_vectors_and_matrices(target):
    weights = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 3))]
    sum((w**2).sum() for w in weights).backward()
    build_optimizer({"_target_": target, "lr": 0.1}, weights).step()
    assert all((w != 1).all() for w in weights)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"_target_": "torch.optim.AdamW", "weight_decay": 0.1}, "has no lr"),
        ({"_target_": "torch.optim.AdamW", "learning_rate": 1e-3}, "learning_rate"),
        ({"_target_": "torch.optim.AdamW", "lr": -1.0}, "-1"),
    ],
)
def test_optimisers_that_are_refused(config, message):
    with pytest.raises(LabError, match=message):
        build_optimizer(config, [torch.nn.Parameter(torch.ones(1))])


def test_counting_reads_nothing_back_from_the_device():
    """The meta device has no values: what waits for one, or brings one from the CPU, fails there."""
    rows, numbers = (torch.empty(2, 4, device="meta", dtype=d) for d in (torch.bool, torch.float32))
    counts, other = StepCounts(2), StepCounts(2)
    counts.add(rows, rows, numbers, numbers, rows)
    other.merge(counts)
    assert other.trained.device.type == "meta"
    layout = Layout(torch.tensor([0, 5]), torch.zeros(3, dtype=torch.int64), torch.arange(3)).to(torch.device("meta"))
    assert layout.total == 5
    assert layout.row_begin.shape == (5,)
