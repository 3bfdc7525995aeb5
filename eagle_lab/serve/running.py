"""Is the server that answers the one that was asked for? By what it says of itself: /server_info, internal_states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.model_config import read_target
from eagle_lab.config.schema import Spec, SpecKind
from eagle_lab.serve.launch import Launch, algorithm, check

SPECULATION = ("num_steps", "eagle_topk", "num_draft_tokens")
DTYPES = {"half": "float16", "float": "float32"}
"""SGLang's other names."""


def speculation(launch: Launch) -> dict[str, Any]:
    """What /server_info must say about drafting; of plain decoding only that there is none."""
    if launch.head is None:
        return {"speculative_algorithm": None}
    return {
        "speculative_algorithm": algorithm(launch.head),
        "speculative_draft_model_path": str(launch.head),
        **{f"speculative_{name}": getattr(launch.spec, name) for name in SPECULATION},
    }


def stated_spec(info: dict[str, Any]) -> Spec:
    """What a server says of its drafting in /server_info; kind none where it drafts nothing."""
    steps, topk, tokens = (info.get(f"speculative_{name}") for name in SPECULATION)
    if not info.get("speculative_algorithm") or not all(isinstance(n, int) for n in (steps, topk, tokens)):
        return Spec()
    return Spec(SpecKind.chain if topk == 1 else SpecKind.tree, steps, topk, tokens)


def check_running(info: dict[str, Any], launch: Launch) -> None:
    """Raises LabError for what launching would refuse, ServingFault when a server that we did not start is another."""
    check(launch)
    server, target = launch.server, read_target(launch.target)
    asked = {  # the gravest first
        **speculation(launch),
        "dtype": server.dtype,
        "context_length": server.context_length,
        "quantization": server.quantization,
    }
    # what was left to SGLang, as it decides it
    settled = {
        **info,
        "dtype": _dtype(info.get("dtype"), target),
        "context_length": info.get("context_length") or target.get("max_position_embeddings"),
    }
    names = [info.get("model_path"), info.get("served_model_name")]
    known = any(isinstance(name, str) and _is_target(name, launch.target) for name in names)
    other = [] if known else [_difference("model_path", names[0], "/server_info", str(launch.target))]
    _refuse(other + differences(settled, asked))


def check_info(info: dict[str, Any], asked: dict[str, Any]) -> None:
    """Compares /server_info, and the scheduler's own view in internal_states, with what was asked for."""
    _refuse(differences(info, asked))


def differences(info: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """One sentence for each field that is not as asked, with what to do about it."""
    schedulers = {f"internal_states[{i}]": s for i, s in enumerate(info.get("internal_states") or [])}
    found = []
    for field, value in asked.items():
        # only what speculates is worth a second view: the others were settled above
        views = {"/server_info": info, **(schedulers if field.startswith("speculative") else {})}
        wrong = next((where for where, view in views.items() if not _same(field, view.get(field), value)), None)
        if wrong is not None:
            found.append(_difference(field, views[wrong].get(field), wrong, value))
    return found


def _refuse(faults: list[str]) -> None:
    if faults:
        raise ServingFault(f"the server does not run what was asked for. {' '.join(faults)}")


def _difference(field: str, found: Any, where: str, value: Any) -> str:
    return f"It runs {field}={found!r} ({where}), asked for was {value!r}. {_fix(field, found, value)}"


def _same(field: str, found: Any, value: Any) -> bool:
    # a path may come back through a link or with a trailing slash
    if field.endswith("_path") and isinstance(found, str):
        return Path(found).resolve() == Path(value).resolve()
    return bool(found == value)


def _is_target(name: str, target: Path) -> bool:
    """The same directory; the hub id of this snapshot; or, on another machine, a directory of the same name."""
    if Path(name).exists():
        return Path(name).resolve() == target.resolve()
    hub = next((p.removeprefix("models--").replace("--", "/") for p in target.parts if p.startswith("models--")), None)
    return name == hub or Path(name).name == target.name


def _dtype(stated: Any, target: dict[str, Any]) -> Any:
    """auto is the target's own type, but for float32: SGLang halves that (model_config.py, _get_and_verify_dtype)."""
    if stated != "auto":
        return DTYPES.get(stated, stated)
    own = target.get("dtype") or target.get("torch_dtype") or "float32"
    halved = "bfloat16" if str(target.get("model_type")).startswith("gemma") else "float16"
    return halved if own == "float32" else own


def _fix(field: str, found: Any, value: Any) -> str:
    if field == "speculative_algorithm" and value is None:
        return "Give its head and numbers (head=..., spec=...), or start it without --speculative-algorithm."
    if field == "speculative_algorithm":
        return (
            "An EAGLE-3 head under EAGLE is served without its fc and without its lm_head: accept length 1, no error. "
            "Start the server with --speculative-algorithm EAGLE3 (`eagle-lab serve` prints the whole command)."
        )
    if field == "model_path":
        return "Start it with --model-path of target.path; on another machine --served-model-name may name target.path."
    if field in ("dtype", "context_length", "quantization"):
        return f"Set server.{field}={'null' if found is None else found}, or start the server otherwise."
    return "Another server answers here, or SGLang has rewritten the argument: look at its log."
