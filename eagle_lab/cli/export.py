"""eagle-lab export: the trained head as a verified SGLang directory."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.cli.stages import head_stage
from eagle_lab.config.schema import Config
from eagle_lab.track.tracker import tracker


def run(config: Config, out: Path) -> int:
    with tracker(config, out, "export") as track:
        head = head_stage(config, track)
    print(f"head {head.digest}, aux layers {head.aux_layers} (canonical), verified by SGLang's own model class:")
    print(head.path)
    return 0
