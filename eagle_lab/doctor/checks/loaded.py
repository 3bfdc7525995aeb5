"""What does SGLang's own class make of the files?"""

from __future__ import annotations

import os

import torch

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.serve.launch import import_environment

NAME = "loaded weights"
CATCHES = (
    "Parameters that SGLang's class leaves as they were (they are filled with NaN, then it loads the files), another"
    " draft vocabulary, other logits than our own code's at the first step: noise that no error tells of."
)
REPORTS = ("vllm#6830", "sglang#8229", "SpecForge#139", "Automodel PR#2447", "TorchSpec#38")
NEEDS = ("head", "target", "served")
LEADS_TO = ("training equals serving", "meaning of the draft ids", "random head", "accept length", "break-even")


def look(s: Subject) -> Finding:
    from eagle_lab.export.verify import first_logits, judge, through_sglang

    truth = s.truth
    head, ids = truth.ours, torch.tensor(s.server.shown)
    aux = torch.cat([truth.streams[k] for k in s.aux_layers], -1)
    sample = {"aux": aux, "embeds": truth.model.embed_weight.cpu()[ids].float()}
    try:
        theirs = through_sglang(s.given.path, s.its_target.path, sample, import_environment(os.environ))
    except ServingFault:
        raise
    except LabError as e:
        raise Skipped(str(e)) from e
    kept = head.embed
    head.embed = sample["embeds"].to(kept.device)
    try:
        ours = first_logits(head, aux.to(kept.device)).cpu()
    finally:
        head.embed = kept
    try:
        found = judge(s.given.path, ours, theirs, head)
    except ServingFault as e:
        return fail(str(e), "every parameter filled, our logits", "export it again from a whole run")
    return ok(f"every parameter filled; logits within {found['max_logit_difference']:.2g} of ours")
