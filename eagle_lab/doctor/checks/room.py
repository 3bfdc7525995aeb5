"""Is there memory and disk enough for this training?"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from eagle_lab.config.aux_layers import resolve
from eagle_lab.config.gpus import Gpu, gpu_named
from eagle_lab.config.schema import Capture
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.draft.shape import head_shape
from eagle_lab.plan.resolve import facts_of
from eagle_lab.plan.training import GIB, needs
from eagle_lab.plan.work import work_of

NAME = "room"
CATCHES = (
    "A training whose largest step does not fit into the GPU's memory, or whose states and checkpoints fit neither on"
    " the disk nor into the host's memory: counted from sizes, within 20 % of what is then measured."
)
REPORTS = ("SpecForge#466", "SpecForge#326", "EAGLE#30", "AngelSlim#288", "SpecForge#112")
NEEDS = ("dataset", "target")
LEADS_TO = ()


def look(s: Subject) -> Finding:
    # those of this machine, over which trainer.target_map spreads the target
    config = replace(s.config, plan=replace(s.config.plan, gpus=max(1, torch.cuda.device_count())))
    target = s.its_target
    shape = head_shape(config.draft, target.config, len(resolve(config.aux, target.num_hidden_layers)))
    need = needs(config, facts_of(target.config), shape, work_of(config, s.tokens))
    capture = config.trainer.capture
    on_disk = need.checkpoints + (need.states if capture is Capture.stored else 0)
    in_host = need.states if capture is Capture.cached else 0
    disk, host, gpu = _free(config.paths.outputs), _host_memory(), _gpu()
    text = f"{on_disk / GIB:.1f} GiB on disk ({disk / GIB:.1f} free)"
    if in_host:
        text += f", {in_host / GIB:.1f} GiB of host memory (of {host / GIB:.1f})"
    if gpu and need.memory:
        text += f", {sum(need.memory.values()) / GIB:.1f} GiB of GPU memory (of {gpu.gib:.0f})"
    if on_disk > disk:
        return fail(text, "a disk that holds them", "paths.outputs on a larger disk, or trainer.capture=online")
    if in_host > host:
        return fail(text, "states that fit into memory", "trainer.capture=online, or stored")
    if gpu and need.fits(gpu) is False:
        return fail(text, "a step that fits", "lower trainer.batch_size or batch_tokens (accumulate more)")
    return ok(text)


def _free(outputs: str) -> int:
    at = Path(outputs).resolve()
    while not at.exists():
        at = at.parent
    return shutil.disk_usage(at).free


def _host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gpu() -> Gpu | None:
    return gpu_named(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
