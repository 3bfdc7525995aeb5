"""All checks, those first that explain most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

import torch

from eagle_lab.config.errors import LabError
from eagle_lab.doctor.checks import (
    accept_length,
    activation,
    amount,
    architecture,
    aux_layers,
    aux_states,
    aux_width,
    biases,
    break_even,
    chat_template,
    contamination,
    coverage,
    cut,
    draft_vocabulary,
    dry_step,
    dtype,
    embedding,
    end_of_turn,
    files,
    layer_convention,
    loaded,
    made_for,
    map_meaning,
    mask,
    norms,
    one_layer,
    positions,
    random_head,
    replayed,
    room,
    rope,
    same_answers,
    served_as,
    shapes,
    tensors,
    tied_embeddings,
    values,
    vocabulary_map,
)
from eagle_lab.doctor.finding import Finding, Level, Skipped, Unreadable, Verdict, fail
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.subject import Subject

ODD = (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, AttributeError)
"""What a config.json with numbers for tables, and text for numbers, raises: the file is anybody's."""


class Check(Protocol):
    NAME: str
    CATCHES: str
    REPORTS: tuple[str, ...]
    NEEDS: tuple[str, ...]
    LEADS_TO: tuple[str, ...]

    def look(self, s: Subject) -> Finding: ...


FILES = cast(
    tuple[Check, ...],
    (
        *(files, architecture, made_for, one_layer, tied_embeddings, draft_vocabulary, norms, biases, tensors, shapes),
        *(aux_layers, aux_width, vocabulary_map, values, embedding, rope, positions, dtype, activation, end_of_turn),
        *(mask, cut, amount, contamination, coverage, room, dry_step),
    ),
)
"""Of what lies on disk."""
SERVED = cast(
    tuple[Check, ...],
    (
        *(served_as, loaded, chat_template, aux_states, replayed),
        *(layer_convention, map_meaning, random_head, accept_length, same_answers, break_even),
    ),
)
"""Of what a server answered."""
CHECKS = (*FILES, *SERVED)
"""In the order in which a fault is looked for."""


def examine(subject: Subject, checks: Iterable[Check] = CHECKS) -> list[Verdict]:
    """Each check's verdict; one that fails does not keep the others from being made."""
    return [Verdict(check.NAME, _look(check, subject)) for check in checks]


def _look(check: Check, subject: Subject) -> Finding:
    missing = [part for part in check.NEEDS if getattr(subject, part) is None]
    if missing:
        said = [subject.missing[part] for part in missing if part in subject.missing]
        return Finding(Level.skipped, said[0] if said else f"no {' and no '.join(missing)} is given")
    try:
        if "head" in check.NEEDS and check not in (files, architecture) and _is_model(subject.given):
            return Finding(Level.skipped, "a whole model is there, no draft head")
        return check.look(subject)
    except Unreadable as e:
        if check is files:
            return Finding(Level.fail, str(e))
        return Finding(Level.skipped, f"not all of its files can be read: see {files.NAME}")
    except LabError as e:
        return Finding(Level.fail, str(e))
    except torch.OutOfMemoryError as e:
        return Finding(Level.skipped, f"the target in float32 does not fit on the GPU ({str(e).partition('.')[0]})")
    except ODD as e:
        return fail(
            f"cannot be judged ({type(e).__name__}: {e})", "", "look at the fields of config.json that it reads"
        )
    except Skipped as e:
        return Finding(Level.skipped, str(e))


def _is_model(head: HeadDirectory) -> bool:
    try:
        return head.is_model
    except Unreadable:
        return False


def diagnosis(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The failures, most likely cause first: none that another failure would bring about comes before that one."""
    failed = [v for v in verdicts if v.level is Level.fail]
    follows = {name for check in CHECKS if any(v.check == check.NAME for v in failed) for name in check.LEADS_TO}
    return sorted(failed, key=lambda v: v.check in follows)
