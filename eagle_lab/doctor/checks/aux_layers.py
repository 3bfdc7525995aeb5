"""Which layers' states will the engine capture, and are they the ones it was trained on?"""

from __future__ import annotations

from eagle_lab.config.aux_layers import ADDS_ONE_ONLY_AFTER_1, captured_by_sglang, default_layers
from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "aux layers"
CATCHES = (
    "Layer ids that are missing (SGLang then guesses), in the input convention where SGLang wants outputs (off by"
    " one), out of range, the same twice, a single one, not ascending, or others than those of the training. vLLM"
    " reads other ids than SGLang: those beside eagle_config, in the input convention."
)
REPORTS = ("vllm#50170", "vllm#43671", "sglang PR#25454", "tokenspeed PR#526", "EAGLE#261")
NEEDS = ("head", "target")
LEADS_TO = ("aux width",)


def look(s: Subject) -> Finding:
    return _by_vllm(s) if s.engine is Engine.vllm else _by_sglang(s)


def _by_sglang(s: Subject) -> Finding:
    head, target = s.given, s.its_target
    n, trained = target.num_hidden_layers, head.export.get("aux_layers")
    ids = head.layer_ids
    if head.config.get("eagle_config") is not None and not isinstance(head.config["eagle_config"], dict):
        return fail("eagle_config is no table", "a table with the ids", "SGLang swallows the error and guesses")
    written = (head.config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if written is not None and ids is None:
        return fail(f"{written}", "a list of whole numbers", "correct them")
    outer = head.config.get("eagle_aux_hidden_state_layer_ids")
    if not ids and outer:
        return fail(
            f"ids {outer} beside eagle_config", "within it", "SGLang does not read them there: move them, less one each"
        )
    if not ids:
        guess = default_layers(n)
        if trained and trained != guess:
            return fail(f"no ids; SGLang captures {guess}", f"{trained}, as trained", "write them into eagle_config")
        return warn(f"no ids; SGLang captures {guess}", "ids written out", "write them: engines guess differently")
    captured = captured_by_sglang(ids, target.architecture)
    if len(ids) < 2:
        return fail(f"{ids}", "at least two", "with a single state SGLang skips fc without a word")
    if len(set(ids)) < len(ids):
        return fail(f"{ids}", "each once", "SGLang captures a layer once, and fc gets too few states")
    if ids != sorted(ids):
        return fail(f"{ids}", "ascending", "SGLang concatenates them in the order of the layers")
    if captured[0] < 1 or captured[-1] > n - 1:
        return fail(f"{ids} stand for {captured}", f"states 1 to {n - 1} of {n} layers", "the last is never captured")
    if trained and captured != trained:
        said = f"{ids}: SGLang captures {captured}"
        off = " (off by one)" if {a - b for a, b in zip(captured, trained, strict=False)} <= {1, -1} else ""
        return fail(said + off, f"{trained}, as trained", f"write {[k - 1 for k in trained]} into eagle_config")
    if not trained and target.architecture not in ADDS_ONE_ONLY_AFTER_1 and captured == [3, n // 2 + 1, n - 2]:
        fix = f"they look like inputs' ids; if its maker meant so, write {[k - 1 for k in ids]} into eagle_config"
        return warn(f"{ids}: SGLang captures {captured}", f"{default_layers(n)} as a rule", fix)
    return ok(f"{ids}: the states that enter layers {captured}" + (", as trained" if trained else ""))


def _by_vllm(s: Subject) -> Finding:
    head, n, trained = s.given, s.its_target.num_hidden_layers, s.given.export.get("aux_layers")
    ids = vllm.stated_ids(head.config)
    if ids is None:
        return _guessed_by_vllm(s)
    if not (isinstance(ids, list) and all(type(k) is int for k in ids)):
        return fail(f"{ids}", "a list of whole numbers", "correct them")
    if len(set(ids)) < len(ids):
        return fail(f"{ids}", "each once", "vLLM captures a layer once, and fc gets too few states")
    if ids != sorted(ids):
        return fail(f"{ids}", "ascending", "vLLM concatenates them in the order of the layers")
    if ids[0] < 0 or ids[-1] > n:
        return fail(f"{ids}", f"0 to {n}, the states that enter these layers", "the others are never captured")
    if trained and ids != trained:
        off = " (SGLang's convention)" if [k + 1 for k in ids] == trained else ""
        return fail(f"{ids}{off}", f"{trained}, as trained", f"write {trained}: vLLM captures what enters these layers")
    guess = default_layers(n)
    if not trained and captured_by_sglang(ids, s.its_target.architecture) == guess:
        fix = f"they look like SGLang's ids; if its maker meant so, write {[k + 1 for k in ids]}"
        return warn(f"{ids}", f"{guess} as a rule", fix)
    return ok(f"{ids}: the states that enter these layers" + (", as trained" if trained else ""))


def _guessed_by_vllm(s: Subject) -> Finding:
    head, trained = s.given, s.given.export.get("aux_layers")
    guess, inner = default_layers(s.its_target.num_hidden_layers), head.layer_ids
    said = f"no ids; vLLM captures {guess}"
    if inner:
        said = f"ids {inner} in eagle_config, which vLLM does not read there; it captures {guess}"
    meant = trained or (captured_by_sglang(inner, s.its_target.architecture) if inner else guess)
    write = f"write {vllm.OUTER_IDS}={meant} beside eagle_config: SGLang does not read it there"
    if guess not in (meant, inner) or (trained and trained != guess):
        return fail(said, f"{meant}, as {'trained' if trained else 'eagle_config means'}", write)
    return warn(said, "ids written out", write)
