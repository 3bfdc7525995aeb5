"""Documents that share a batch do not see each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from eagle_lab.config.schema import Loss, Optim
from eagle_lab.data.dataset import Dataset
from eagle_lab.draft.head import Head
from eagle_lab.draft.shape import head_shape
from eagle_lab.draft.unroll import Batch
from eagle_lab.ops.unroll_attention.layout import Layout
from eagle_lab.train.feed import Feed, Online
from eagle_lab.train.module import HeadModule
from tests.train.conftest import LOCATED, SmallTarget, config_of

CPU = torch.device("cpu")
ROWS = [2, 5, 9]


@pytest.fixture
def module(target: SmallTarget) -> HeadModule:
    torch.manual_seed(0)
    head = Head(head_shape(config_of().draft, LOCATED.config, 3))
    head.embed = target.embed_weight
    head.t2d[:24] = True
    return HeadModule(head, target.lm_head_weight, Loss(unroll_steps=3), Optim(), 1)


class Alone:
    """The trainer of a step that is done in parts by one process."""

    accumulate_grad_batches = 1


def compare(module: HeadModule, feed: Feed, packed: Batch) -> None:
    """Loss and gradients of the batch are those of its documents, each a part of the step of its own."""
    loss, counts = module.forward_steps(packed)
    loss.backward()
    found = [p.grad.clone() for p in module.head.parameters() if p.grad is not None]
    module.zero_grad()
    module._trainer = Alone()  # type: ignore[assignment]
    parts = []
    for row in ROWS:
        part, _ = module.forward_steps(replace(feed.batch([row]), whole=counts.trained.long()))
        part.backward()
        parts.append(part.detach())
    torch.testing.assert_close(loss.detach(), sum(parts), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, [p.grad for p in module.head.parameters() if p.grad is not None])


@pytest.fixture
def feed(target: SmallTarget, dataset: Dataset) -> Feed:
    return Feed(dataset.rows, Online(target, dataset.rows, CPU), CPU)


def test_packed_documents_train_as_each_alone(module: HeadModule, feed: Feed) -> None:
    compare(module, feed, feed.batch(ROWS))


def test_a_leak_between_documents_is_caught(module: HeadModule, feed: Feed) -> None:
    """Planted: the rows of a batch may attend to the keys of the documents before their own."""
    batch = feed.batch(ROWS)
    own = batch.layout
    leaking = Layout(own.doc_start[[0, -1]], torch.zeros_like(own.row_doc), own.row_token)
    with pytest.raises(AssertionError):
        compare(module, feed, replace(batch, layout=leaking))
