"""eagle-lab bench-ops: the ops and the whole training step, timed at the config's head, beside the reference."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_lab.cli.listing import print_table
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import append_jsonl
from eagle_lab.config.provenance import provenance
from eagle_lab.config.schema import Config, OpsImpl

if TYPE_CHECKING:
    from eagle_lab.benchmark.cases import Sizes

HEAD = ["op", "ops", "ms", "p20 to p80", "GiB", "GB/s", "of a copy", "TFLOP/s"]


def run(config: Config, out: Path) -> int:
    """Appends a row per op and implementation to out/ops.jsonl; a wrong op gets no row and ends with exit code 3."""
    import torch

    from eagle_lab.benchmark.cases import CASES
    from eagle_lab.benchmark.timing import check, copy_bandwidth, measure, small
    from eagle_lab.config.errors import ServingFault
    from eagle_lab.ops.dispatch import op_set

    sizes = sizes_of(config)
    chosen = config.bench_ops.cases or list(CASES)
    if unknown := [name for name in chosen if name not in CASES]:
        raise LabError(f"bench_ops.cases: {', '.join(unknown)} is none of {', '.join(CASES)}.")
    impls = ["reference"] if config.ops.impl is OpsImpl.reference else ["triton", "reference"]
    if sizes.device.type == "cpu" and config.ops.impl is OpsImpl.auto:
        impls = ["reference"]
    repeats = config.bench_ops.repeats
    where = torch.cuda.get_device_name() if sizes.device.type == "cuda" else "CPU"
    roof = copy_bandwidth(sizes.device, repeats)
    facts: dict[str, Any] = {
        **{k: v for k, v in asdict(sizes.shape).items() if k != "rope_parameters"},
        **{"tokens": sizes.tokens, "rows": sizes.rows, "steps": sizes.steps, "dtype": str(sizes.dtype)},
        **{"hardware": where, "copy_gb_s": roof, "provenance": provenance()},
    }
    lines = []
    for name in chosen:
        for impl in impls[:1] if name == "matmuls" else impls:
            ops = op_set(impl, sizes.device)
            try:
                check(name, small(sizes), ops)
            except AssertionError as e:
                raise ServingFault(f"ops={impl} is not measured, since it is wrong here: {e}") from e
            try:
                row = measure(name, sizes, ops, repeats)
            except torch.OutOfMemoryError:
                print(f"{name}, ops={impl}: does not fit on {where}", file=sys.stderr)
                continue
            append_jsonl(out / "ops.jsonl", {**row, "impl": impl, **facts})
            lines.append(_line(row, impl, roof))
            print(" ".join(lines[-1]), flush=True)
    print_table(f"{where}, copy {roof:.0f} GB/s", HEAD, lines)
    return 0


def _line(row: dict[str, Any], impl: str, roof: float) -> list[str]:
    share = f"{100 * row['gb_s'] / roof:.0f} %" if row["gb_s"] and row["op"] != "unroll_attention" else ""
    numbers = [f"{row['gb_s']:.0f}" if row["gb_s"] else "", share, f"{row['tflop_s']:.0f}" if row["tflop_s"] else ""]
    spread = f"{row['ms_p20']:.3f} to {row['ms_p80']:.3f}"
    return [row["op"], impl, f"{row['ms']:.3f}", spread, f"{row['peak_gib']:.2f}", *numbers]


def sizes_of(config: Config) -> Sizes:
    """The head's shape from target.facts alone: no weights are needed. LabError for a fact that is missing."""
    import torch

    from eagle_lab.benchmark.cases import Sizes
    from eagle_lab.config.aux_layers import resolve
    from eagle_lab.draft.shape import head_shape
    from eagle_lab.train.device import compute_device

    facts = {k: v for k, v in asdict(config.target.facts).items() if v is not None}
    if missing := [k for k in ("num_hidden_layers", "hidden_size", "vocab_size") if k not in facts]:
        raise LabError(f"target {config.target.name}: unknown {', '.join(missing)}. Set target.facts.{missing[0]}=...")
    shape = head_shape(config.draft, facts, len(resolve(config.aux, facts["num_hidden_layers"])))
    device = compute_device(config)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    bench = config.bench_ops
    return Sizes(shape, bench.tokens, bench.supervised, config.loss.unroll_steps, dtype, device)
