"""eagle-lab features: captures the target's states of the whole dataset to disk, for trainer.capture=stored."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.cli.listing import size
from eagle_lab.cli.stages import dataset_stage, features_stage
from eagle_lab.config.schema import Config


def run(config: Config, out: Path) -> int:
    """Captures (or finds) them under paths.outputs and prints what they are and how large."""
    target, _, dataset = dataset_stage(config)
    done = features_stage(config, target, dataset)
    facts = done.manifest or {}
    whole = sum(file["size"] for file in facts["files"].values())
    print(
        f"{facts['rows']:,} rows, {facts['tokens']:,} tokens, {facts['supervised_tokens']:,} supervised; aux layers "
        f"{facts['aux_layers']}, {facts['width']:,} wide; {size(whole)} in {len(facts['first_rows'])} shard(s)"
    )
    print(f"{'found' if done.reused else 'made'}: {done.path}")
    return 0
