"""A good head and its target, and what is asked about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from eagle_lab.config.schema import Config, Doctor, Engine
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.subject import Subject
from eagle_lab.target.locate import LocatedTarget
from tests.known_acceptance import CPU

Made = tuple[LocatedTarget, Path]


def subject(good: Made, head: Path, engine: Engine = Engine.sglang) -> Subject:
    config = Config(name="test", server=replace(CPU, context_length=512), doctor=Doctor(engine=engine))
    return Subject(config, HeadDirectory(head, engine), good[0])


def targets_embedding(good: Made) -> torch.Tensor:
    return load_file(good[0].path / "model.safetensors")["model.embed_tokens.weight"].clone()
