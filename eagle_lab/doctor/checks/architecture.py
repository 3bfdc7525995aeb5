"""Is it a class that the engine serves as EAGLE-3?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.subject import Subject
from eagle_lab.serve.pairing import EAGLE3_HEADS

NAME = "architecture"
CATCHES = (
    "A class that SGLang has no EAGLE-3 code for: an EAGLE-1 head, speculators' own class, the target's class. "
    "Served as EAGLE, or taken for a target, it accepts next to nothing. vLLM: a name that its registry does not have, "
    "speculators' layout with fields missing. A whole model instead of a head."
)
REPORTS = ("sglang PR#21272", "sglang#36528", "SpecForge#215", "EAGLE#292", "sglang#8229")
NEEDS = ("head",)
LEADS_TO = (
    *("tensors", "draft vocabulary", "aux layers", "aux width", "tied embeddings"),
    *("made for this target", "one layer", "rope", "norms"),
)


def look(s: Subject) -> Finding:
    if s.given.is_model:
        which = "the target itself" if s.target and s.target.path == s.given.path else "a whole model"
        return fail(f"{which}, {s.given.architecture}", "a draft head", "give the head's own directory as head=")
    named = s.given.config.get("architectures")
    if named is not None and not isinstance(named, list):
        return fail(f"architectures={named!r}", f"a list, [{named!r}]", "correct config.json")
    if s.engine is Engine.vllm:
        return _by_vllm(s.given)
    found = s.given.architecture
    if found in EAGLE3_HEADS:
        return ok(f"{found}, served with --speculative-algorithm EAGLE3")
    wanted = " or ".join(sorted(EAGLE3_HEADS))
    if "speculators_model_type" in s.given.config or found in ("Eagle3DraftModel", "Eagle3Speculator"):
        return fail(f"{found} (speculators)", wanted, "vLLM loads it as it is; for SGLang it has to be converted")
    return fail(found, wanted, "convert the head, or correct `architectures` in its config.json")


def _by_vllm(head: HeadDirectory) -> Finding:
    if head.nested:
        if fault := vllm.layout_fault(head.written):
            return fail(fault, "speculators' layout, whole", "vLLM refuses it: write it as speculators does")
        return ok(f"{head.architecture}, from speculators' layout")
    if not head.written.get("model_type"):
        return fail("no model_type, no speculators_config", "model_type=llama", "transformers refuses it: write it")
    if head.architecture not in vllm.CLASSES:
        wanted = "LlamaForCausalLMEagle3, or speculators' layout"
        return fail(f"{head.architecture} is asked for", wanted, "vLLM's registry has no such class: correct it")
    return ok(f"{head.architecture}, served with method eagle3")
