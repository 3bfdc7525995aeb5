"""config.json of a target and of a head: what eagle_lab reads of it, of the types that it can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields, read_json

TARGET: dict[str, Any] = {
    "architectures": list[str],
    **dict.fromkeys(("num_hidden_layers", "hidden_size", "vocab_size"), int),
    **dict.fromkeys(("max_position_embeddings", "num_attention_heads", "num_key_value_heads", "head_dim"), int | None),
    **dict.fromkeys(("dtype", "torch_dtype", "model_type"), str | None),
    **dict.fromkeys(("rope_parameters", "rope_scaling"), dict | None),
}
HEAD: dict[str, Any] = {
    "architectures": list[str],
    **dict.fromkeys(("hidden_size", "vocab_size"), int),
    **dict.fromkeys(("draft_vocab_size", "target_hidden_size", "max_position_embeddings"), int | None),
    **dict.fromkeys(("num_aux_hidden_states", "num_attention_heads", "num_key_value_heads", "head_dim"), int | None),
    **{"eagle_config": dict | None, "rope_parameters": dict | None, "rope_scaling": dict | None},
}
HEAD_WANTED = "Give a head's directory, as `eagle-lab export` prints it (config.json and weights)."
CAPTURE: dict[str, Any] = {"eagle_aux_hidden_state_layer_ids": list[int] | None, "use_aux_hidden_state": bool | None}
EXPORT: dict[str, Any] = {
    **{"aux_layers": list[int] | None, "num_hidden_layers": int | None},
    **dict.fromkeys(("target_digest", "target_architecture"), str | None),
    "held_out_cumulative": list[float] | None,
}


def read_config(directory: Path, fix: str = HEAD_WANTED) -> dict[str, Any]:
    """A directory's config.json, whatever is in it."""
    if not directory.is_dir():
        raise LabError(f"{directory}: {'a file' if directory.exists() else 'no such directory'}. {fix}")
    if not (directory / "config.json").is_file():
        raise LabError(f"{directory}: no config.json in it. {fix}")
    return read_json(directory / "config.json")


def read_target(directory: Path) -> dict[str, Any]:
    """A target's config.json; on a multimodal model the text part's fields win, but for the class.

    LabError when it does not describe a causal language model.
    """
    fix = "A causal language model's Hugging Face directory is wanted (target.path)."
    config = read_config(directory, fix)
    where = f"{directory}/config.json"
    check_fields(config, {"text_config": dict | None}, where, fix)
    merged = config | (config.get("text_config") or {})
    merged |= {key: config[key] for key in ("architectures", "model_type") if key in config}
    _check(merged, TARGET, where, fix)
    return merged


def read_head(directory: Path) -> dict[str, Any]:
    """A head's config.json, by whatever trainer; LabError when it lacks what SGLang's class reads."""
    fix = "Export the head again, or correct the file as its trainer meant it."
    config = read_config(directory)
    _check(config, HEAD, f"{directory}/config.json", fix)
    check_fields(config.get("eagle_config") or {}, CAPTURE, f"{directory}/config.json, eagle_config", fix)
    return config


def read_export(head: Path) -> dict[str, Any]:
    """What the exporter wrote beside a head about its making; empty for a head made elsewhere."""
    file = head / "export.json"
    if not file.exists():
        return {}
    facts = read_json(file)
    check_fields(facts, EXPORT, str(file), "Export the head again.")
    return facts


def _check(config: dict[str, Any], wanted: dict[str, Any], where: str, fix: str) -> None:
    # a class that is not named is no class
    named = {k: v for k, v in config.items() if not (k == "architectures" and v in ([], None))}
    check_fields(named, wanted, where, fix)
    counts = {k: config[k] for k, kind in wanted.items() if kind in (int, int | None) and config.get(k) is not None}
    below = [f"{k}={n}" for k, n in counts.items() if n < 1]
    if below:
        raise LabError(f"{where}: {', '.join(below)}: at least 1 is wanted. {fix}")
