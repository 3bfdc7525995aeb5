"""Milliseconds, memory and share of the roofline of a case, after it was compared with the reference."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagle_lab.benchmark.cases import CASES, Case, Sizes
from eagle_lab.ops.dispatch import OpSet
from eagle_lab.ops.tolerances import check_close

WARM_UP = 3
FLUSH_BYTES = 256 << 20
"""More than an H200's L2 (50 MB): every repetition finds it cold."""
COPIED_BYTES = 1 << 30


def check(name: str, sizes: Sizes, ops: OpSet) -> None:
    """AssertionError when values or gradients differ from the reference's in fp32, by ops/tolerances.py.

    The whole step is not compared: its argmax decides, so two right ones may differ.
    """
    if name in ("step", "matmuls"):
        return
    torch.manual_seed(0)
    case = CASES[name](sizes)
    found, wanted = case.run(ops), case.run(OpSet())
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        check_close(a.to(sizes.dtype), b.double(), "value", f"{name}, output {i}")
    if case.inputs:
        grads = [torch.randn_like(o) for o in found]
        mine = torch.autograd.grad(found, case.inputs, grads)
        theirs = torch.autograd.grad(wanted, case.inputs, grads)
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            check_close(a, b.double(), "gradient", f"{name}, input {i}")


def measure(name: str, sizes: Sizes, ops: OpSet, repeats: int) -> dict[str, Any]:
    """Median and 20th and 80th percentile of forward and backward, and the peak memory above the inputs.

    The outputs' gradients are given: making them is not timed. Ops without products are replayed from a CUDA graph.
    """
    torch.manual_seed(0)
    case = CASES[name](sizes)
    # what only moves memory is over before Python has launched the next kernel
    times, peak = _times(_both(case, ops), sizes.device, repeats, graph=not case.flops)
    middle, tenths = statistics.median(times), statistics.quantiles(times, n=10, method="inclusive")
    return {
        "op": name,
        "ms": middle,
        "ms_p20": tenths[1],
        "ms_p80": tenths[7],
        "peak_gib": peak,
        "gb_s": case.moved / middle / 1e6,
        "tflop_s": case.flops / middle / 1e9,
    }


def copy_bandwidth(device: torch.device, repeats: int) -> float:
    """GB/s of a plain copy, read and write counted: the roof of every op that only moves memory."""
    size = COPIED_BYTES if device.type == "cuda" else 1 << 26
    source = torch.empty(size, dtype=torch.uint8, device=device)
    into = torch.empty_like(source)
    times, _ = _times(lambda: into.copy_(source), device, repeats)
    return 2 * size / statistics.median(times) / 1e6


def _both(case: Case, ops: OpSet) -> Callable[[], Any]:
    """Forward and backward."""
    if not case.inputs:
        return lambda: case.run(ops)
    ones = [torch.ones_like(o) for o in case.run(ops)]
    return lambda: torch.autograd.grad(case.run(ops), case.inputs, ones)


def _times(
    action: Callable[[], Any], device: torch.device, repeats: int, graph: bool = False
) -> tuple[list[float], float]:
    """(milliseconds of each repetition, peak GiB above what was there before)."""
    if device.type != "cuda":
        action()
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            action()
            times.append((time.perf_counter() - began) * 1e3)
        return times, 0.0
    for _ in range(WARM_UP):
        action()
    flush: Tensor = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    action()
    peak = (torch.cuda.max_memory_allocated(device) - before) / 2**30
    if graph:
        action = _recorded(action)
    times = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        action()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return times, peak


def _recorded(action: Callable[[], Any]) -> Callable[[], Any]:
    """Replays the kernels that the action launches, without the Python around them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        action()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        action()
    return recorded.replay


def small(sizes: Sizes) -> Sizes:
    """The same kernels, in little memory and time: for `check`."""
    h = sizes.shape
    shape = replace(h, vocab_size=min(h.vocab_size, 4096), draft_vocab_size=min(h.draft_vocab_size, 1000))
    return replace(sizes, shape=shape, tokens=min(sizes.tokens, 300), steps=min(sizes.steps, 3))
