"""What the verbs print about a stage."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from eagle_lab.config.stage import Stage


def head_table(trained: Stage, brief: bool = False) -> None:
    """Where a trained head is and, unless brief, its held-out accuracies per unroll step and proxy accept length."""
    assert trained.manifest is not None
    metrics = trained.manifest["metrics"]
    console = Console()
    console.print(f"{'done already' if trained.reused else 'trained'}: {trained.path}")
    if brief:
        return
    if not metrics:
        console.print("no held-out conversations: no metrics (set data.holdout above 0)")
        return
    table = Table(title="held-out positions")
    for column in ("draft step", "accuracy", "cumulative", "acceptance sum(min(p, q))", "loss (nats)"):
        table.add_column(column, justify="right")
    for i in range(sum(k.startswith("accuracy_") for k in metrics)):
        names = ("accuracy", "cumulative", "acceptance", "loss")
        table.add_row(str(i + 1), *(f"{metrics[f'{n}_{i}']:.3f}" for n in names))
    console.print(table)
    console.print(
        f"proxy accept length {metrics['proxy_accept_length']:.3f} (1 + sum of cumulative), replayed over the held-out "
        f"answers {metrics['replayed_accept_length']:.3f}"
    )
