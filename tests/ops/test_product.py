"""One weight in several products: their sum of gradients, also where the other factor is made again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from eagle_lab.ops.product import function, reference
from eagle_lab.ops.tolerances import check_close

STEPS = 3


def both(module: Any, xs: list[torch.Tensor], weight: torch.Tensor, again: bool) -> list[torch.Tensor]:
    """Outputs of each step, then the gradients of all x and of the weight."""
    times = module.product(weight)
    outs = [times(x * 1, *((lambda y: y * 1, x) if again else ())) for x in xs]
    loss = sum((o.float() * (i + 1)).square().sum() for i, o in enumerate(outs))
    return [*outs, *torch.autograd.grad(loss, [*xs, weight])]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 7, 0])
def test_as_the_reference(rows: int, dtype: torch.dtype, again: bool, random: Callable[..., torch.Tensor]) -> None:
    xs, weight = [random(rows, 24, dtype=dtype) for _ in range(STEPS)], random(10, 24, dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in xs], weight.detach().double().requires_grad_()
    found, wanted = both(function, xs, weight, again), both(reference, *wide, again)
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.dtype == dtype
        check_close(a, b, "value" if i < STEPS else "gradient", f"output {i}")


def test_a_weight_in_float32_sums_in_float32_under_autocast(random: Callable[..., torch.Tensor]) -> None:
    xs, weight = [random(5, 24) for _ in range(STEPS)], random(10, 24)
    with torch.autocast(weight.device.type, torch.bfloat16):
        found = both(function, xs, weight, False)
    assert [t.dtype for t in found] == [torch.bfloat16] * STEPS + [torch.float32] * (STEPS + 1)
    rounded = [x.detach().bfloat16().double().requires_grad_() for x in xs]
    wanted = both(reference, rounded, weight.detach().bfloat16().double().requires_grad_(), False)
    check_close(found[-1].bfloat16(), wanted[-1], "gradient", "weight")


def test_what_needs_no_gradient_gets_none(random: Callable[..., torch.Tensor]) -> None:
    x, weight = random(5, 24), random(10, 24)
    alone = function.product(weight.detach())(x)
    assert torch.autograd.grad(alone.sum(), [x])[0].shape == x.shape
    times = function.product(weight)
    (gradient,) = torch.autograd.grad(times(x.detach()).sum() + times(x.detach()).sum(), [weight])
    check_close(gradient, 2 * x.detach().double().sum(0).expand(10, 24), "gradient")
    with torch.no_grad():
        assert not function.product(weight)(x).requires_grad


def test_a_pass_that_nothing_was_asked_of_leaves_no_gradient(random: Callable[..., torch.Tensor]) -> None:
    weight = random(10, 24)
    function.product(weight)
    times = function.product(weight)
    times(random(2, 24)).sum().backward()
    first = weight.grad.clone()
    function.product(weight)(random(2, 24) * 0).sum().backward()
    torch.testing.assert_close(weight.grad, first)


def test_made_again_keeps_nothing(random: Callable[..., torch.Tensor]) -> None:
    kept: list[tuple[int, ...]] = []
    x, small, weight = random(50, 24), random(50, 12), random(10, 24)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(tuple(t.shape)) or t, lambda t: t):
        function.product(weight)(x, lambda y: y.repeat(1, 2), small)
    assert (50, 24) not in kept
    assert (50, 12) in kept


def test_the_weight_is_cast_once_per_pass_and_sources_are_given_back(random: Callable[..., torch.Tensor]) -> None:
    x, weight = random(5, 24), random(10, 24)
    source = x.detach().clone()
    alive = weakref.ref(source)
    kept: list[int] = []
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t),
        torch.autocast(weight.device.type, torch.bfloat16),
    ):
        times = function.product(weight)
        loss = (times(x, lambda y: y, source) + times(x)).sum()
    assert len(kept) - len(set(kept)) == 1  # the cast, in both products
    del source
    loss.backward()
    assert alive() is None  # though the loss is still there


def test_a_second_derivative_is_refused(random: Callable[..., torch.Tensor]) -> None:
    x, weight = random(5, 24), random(10, 24)
    (first,) = torch.autograd.grad(function.product(weight)(x).square().sum(), [weight], create_graph=True)
    with pytest.raises(RuntimeError, match=r"does not require grad|once_differentiable"):
        first.sum().backward()
