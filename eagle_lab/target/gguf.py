"""A GGUF file -> a Hugging Face directory with float32 safetensors, which SGLang and the trainer both read."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError


def packaged_gguf(package: str) -> tuple[Path, str] | None:
    """The GGUF file that a pip package carries and the package's version; None when it is not installed.

    The package's metadata is read, not its code: its own imports (a llama.cpp binding) need not be installed.
    """
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return None
    files = [Path(str(found.locate_file(f))) for f in found.files or [] if f.suffix == ".gguf"]
    if len(files) != 1:
        raise LabError(
            f"target.package={package}: {len(files)} GGUF files in it, one is wanted. "
            "Use target.path with a Hugging Face directory instead."
        )
    return files[0], found.version


def convert(gguf: Path, into: Path) -> None:
    """Writes model.safetensors (float32), config.json, generation_config.json and the tokenizer's files to `into`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.save_pretrained(into)
    # tokenizer_config.json keeps it, so it is part of the target's digest; left out, HF_HUB_OFFLINE would decide
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    _pretokenise_as_trained(tokenizer, gguf)
    # true would strip spaces before punctuation when decoding; transformers warns about it at every load
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(into)


def _pretokenise_as_trained(tokenizer: Any, gguf: Path) -> None:
    """Splits digits where the model was trained so; transformers 5.12 ignores GGUF's `tokenizer.ggml.pre`.

    Without it "a  5" becomes other tokens than in SmolLM2's own tokenizer (the run of spaces is cut elsewhere).
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    kind = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if kind is not None and kind.contents() == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
