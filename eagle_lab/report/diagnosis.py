"""Is an accept length what the head promised? From a row's columns alone, in words, likeliest cause first."""

from __future__ import annotations

from typing import Any

from eagle_lab.report.table import interval, link, number, short

SHORTFALL = 0.03
"""Tokens per round. In bfloat16 the replay (float32) and the server round differently; what is below this is noise."""
SHIFT = 0.25
"""Tokens per round between the held-out proxy and the replay from which on the suite's text counts as another kind."""


def alarm(row: dict[str, Any]) -> list[str]:
    """Empty when the server accepts what our own head code predicts over the same tokens; else the finding and causes.

    In float32 on a CPU the two are equal request by request. Elsewhere served must not lie below replayed by more than
    SHORTFALL with its whole 95 % interval over prompts.
    """
    if row.get("replayed_requests") is None:
        return []
    exact = row.get("server_kind") == "cpu" and row.get("dtype") == "float32"
    high = row.get("replayed_difference_high")
    high = row["replayed_difference"] if high is None else high
    if (row["replayed_equal"] == row["replayed_requests"]) if exact else (high >= -SHORTFALL):
        return []
    between = interval(row.get("replayed_difference_low"), row.get("replayed_difference_high"))
    finding = (
        f"{row['spec']} (head {short(row.get('head_digest'))}): served accept length "
        f"{number(row['replayed_served_accept_length'])}, but our own head code gives "
        f"{number(row['replayed_accept_length'])} over the same tokens (difference 95 %: {between}; "
        f"{row['replayed_equal']} of {row['replayed_requests']} requests equal). The server does not compute what was "
        "trained. Likeliest causes first:"
    )
    return [finding, *(f"({i}) {cause}" for i, cause in enumerate(_causes(row), 1))]


def _causes(row: dict[str, Any]) -> list[str]:
    # of the same requests, since the first may be easier than all; a row of an older version lacks that column
    served, replayed = row.get("replayed_served_survival") or row["survival"], row["replayed_survival"]
    first = (replayed[0] if replayed else 0.0) - (served[0] if served else 0.0)
    at_first = [
        "the aux layer ids in the head's config.json are not those that it was trained with (an off-by-one between "
        "conventions: SGLang's explicit ids are the canonical ones minus 1 for most targets)",
        "d2t or lm_head are of another vocabulary map",
        "the target is served with other weights (quantised, another revision) than it was trained on",
    ]
    deeper = [
        "rope_parameters or max_position_embeddings of the head differ from those it was trained with",
        "the carried state is normed, or not, other than in training (norm_output, fc_norm)",
        "the engine rewrote num_steps, eagle_topk or num_draft_tokens: look at server_info.json",
    ]
    return [*at_first, *deeper] if first > SHORTFALL else [*deeper, *at_first]


def note(row: dict[str, Any]) -> str | None:
    """What was not checked; or what the distance between proxy and suite says, where serving itself is right."""
    if row.get("unchecked"):
        return (
            f"{row['spec']} (head {short(row.get('head_digest'))}): neither replayed nor judged for losslessness: "
            f"{row['unchecked']}."
        )
    proxy, replayed = row.get("proxy_accept_length"), row.get("replayed_accept_length")
    if proxy is None or replayed is None or proxy - replayed <= SHIFT or alarm(row):
        return None
    covered = row.get("coverage")
    outside = "" if covered is None else f", and its draft vocabulary covers {100 * covered:.1f} % of the served tokens"
    return (
        f"{row['spec']} (head {short(row.get('head_digest'))}): the held-out proxy is {number(proxy)}, the replay of "
        f"{row['replayed_requests']} served requests gives {number(replayed)}: serving is right, but the suite's text "
        f"is unlike the training data{outside}. More data of the suite's kind is what helps."
    )


def promises(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: per draft position the training proxy, the replay and what was served."""
    kept = [r for r in rows if r.get("proxy_survival") or r.get("replayed_survival")]
    deepest = max((len(r.get(c) or []) for r in kept for c in COLUMNS), default=0)
    header = ["spec", "head", "", "accept length", *(f"k={k}" for k in range(1, deepest + 1))]
    cells = []
    for r in kept:
        for column, (title, total) in COLUMNS.items():
            values = r.get(column)
            if values:
                padded = [number(v) for v in values] + ["-"] * (deepest - len(values))
                name = link(r["spec"], r["fingerprint"])
                cells.append([name, short(r.get("head_digest")), title, number(r.get(total)), *padded])
    return header, cells


COLUMNS = {
    "proxy_survival": ("training proxy (held out)", "proxy_accept_length"),
    "replayed_survival": ("replayed over served tokens", "replayed_accept_length"),
    "survival": ("served", "accept_length"),
}
