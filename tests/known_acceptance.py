"""What is known before any server starts: target=known_acceptance maps t to t + 1, its head lacks t % SKIP == 0."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.config.schema import Draft, DraftInit, Server, ServerKind, Target, TargetKind
from eagle_lab.target.locate import LocatedTarget

SKIP, AUX = 5, [2, 4, 5]
CPU = Server(
    kind=ServerKind.cpu,
    dtype="float32",
    context_length=512,
    max_running_requests=4,
    max_total_tokens=4096,
    mem_fraction=0.1,
    attention_backend="intel_amx",
)


def known_pair(root: Path, chat_template: str | None = None) -> tuple[LocatedTarget, Path]:
    """The target (made under `root`) and its exact head, root/head, in real weights."""
    from safetensors.torch import load_file

    from eagle_lab.draft.known import analytic_head, kept_ids
    from eagle_lab.draft.shape import head_shape
    from eagle_lab.export.sglang import write
    from eagle_lab.target.locate import locate

    target = locate(Target(name="known", kind=TargetKind.known_acceptance, chat_template=chat_template), root)
    weights = load_file(target.path / "model.safetensors")
    draft = Draft(vocab_size=len(kept_ids(target.vocab_size, SKIP)), init=DraftInit.analytic, skip=SKIP)
    shape = head_shape(draft, target.config, len(AUX))
    tensors = analytic_head(weights["model.embed_tokens.weight"], weights["lm_head.weight"], shape, SKIP)
    facts = {"target_digest": target.digest, "target_architecture": target.architecture, "aux_layers": AUX}
    write(root / "head", tensors, shape, AUX, target.config, facts)
    return target, root / "head"


def known_rounds(last: int, tokens: int, steps: int) -> list[int]:
    """Correct drafts of each verify step of an answer of `tokens` tokens to a prompt that ends with `last`.

    The answer must not reach the vocabulary's end.
    """
    found: list[int] = []
    at = last + 1
    while at - last < tokens:
        correct = 0
        while correct < steps and (at + correct + 1) % SKIP:
            correct += 1
        found.append(correct)
        at += correct + 1
    return found


def known_histogram(last: int, tokens: int, steps: int) -> list[int]:
    found = known_rounds(last, tokens, steps)
    return [found.count(k) for k in range(steps + 1)]
