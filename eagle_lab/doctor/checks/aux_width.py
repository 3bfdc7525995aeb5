"""Does fc take as many aux states as will be captured?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "aux width"
CATCHES = (
    "fc for another number of aux states than config.json makes SGLang capture (it counts num_aux_hidden_states, "
    "then the ids, then three; vLLM captures by other ids than it counts), or for a target of another width, or "
    "not run at all (use_aux_hidden_state)."
)
REPORTS = ("sglang PR#14920", "sglang#24663")
NEEDS = ("head",)
LEADS_TO = ("values",)


def look(s: Subject) -> Finding:
    head, c = s.given, s.given.config
    ids, stated = head.layer_ids, c.get("num_aux_hidden_states")
    inner = c.get("eagle_config")
    if isinstance(inner, dict) and inner.get("use_aux_hidden_state") is False and "fc.weight" in head.headers:
        return fail("use_aux_hidden_state=false, and fc is there", "true", "no aux state is captured, fc is not run")
    if s.engine is Engine.vllm and head.is_llama:
        captured, counted = vllm.stated_ids(c) or (), vllm.states_counted(c, ids)
        if isinstance(captured, list | tuple) and (many := len(captured) or 3) != counted:
            where = "transformer_layer_config" if head.nested else "config.json"
            fix = f"vLLM does not count the ids that it captures: write num_aux_hidden_states={many} into {where}"
            return fail(f"{many} states are captured, fc is made for {counted}", f"{many}", fix)
    else:
        counted = stated if isinstance(stated, int) else len(ids) if ids else 3
        if ids and len(ids) != counted:
            return fail(f"{len(ids)} layer ids, num_aux_hidden_states={stated}", "as many", "correct config.json")
    hidden = c.get("hidden_size")
    if not isinstance(hidden, int):
        raise Skipped("config.json has no hidden_size")
    width = c.get("target_hidden_size") or hidden
    size = (hidden, counted * width)
    if "fc.weight" not in head.headers:
        return fail("no fc.weight", f"{list(size)}", "export it again")
    found = head.headers["fc.weight"].shape
    if found != size:
        fix = "write the ids that it was trained on into eagle_config"
        if found[::-1] == size:
            fix = "transpose it: torch keeps [outputs, inputs]"
        return fail(f"fc.weight is {list(found)}", f"{list(size)} for {counted} states of {width}", fix)
    return ok(f"{found[1]:,} = {counted} x {width:,}")
