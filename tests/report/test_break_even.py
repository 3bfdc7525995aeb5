"""What the report says of costs, break-even and points that were not measured."""

import csv
import json
import re
import shutil
import time

import pytest

from eagle_lab.evaluate import intervals
from eagle_lab.report.break_even import faster_chain, heads, section
from eagle_lab.report.write import report

SURVIVAL = [0.6**k for k in range(1, 16)]


def grid(make, tokens, base=20.0, fixed=0.04, each=0.01, **changes) -> list[dict]:
    """A baseline of `base` tok/s and chains whose rounds take fixed + each * tokens seconds."""
    found = [make.baseline(base, **changes)] if base else []
    for n in tokens:
        accept = 1 + sum(SURVIVAL[: n - 1])
        row = make.chain(n, accept, accept / (fixed + each * n), base=base or 1.0, survival=SURVIVAL[: n - 1])
        found.append({**row, **changes} if base else {k: v for k, v in row.items() if k not in NEEDS_BASELINE})
    return found


NEEDS_BASELINE = ("baseline_tok_s", "speedup", "speedup_low", "speedup_high", "break_even_accept_length")


def cells(text: str, spec: str, title: str) -> list[str]:
    """Of the spec's line in the table under `title`."""
    lines = text.split(title)[1].split("\n### ")[0].split("\n## ")[0].splitlines()
    return next(
        [c.strip() for c in x.strip("|").split("|")] for x in lines if x.startswith((f"| [{spec}]", f"| {spec} "))
    )


def test_measured_beside_predicted_and_the_csv_has_it(tmp_path, make):
    """Plain step 50 ms; a chain of n takes 40 + 10 n ms."""
    make.put(tmp_path / "run", grid(make, (2, 5, 9)), state=None)
    text = report(tmp_path / "run", intervals).read_text()
    # chain_5: round 90 ms, so it breaks even at 1.8; its accept length from chain_9's first four drafts
    line = cells(text, "chain_5", "### Break-even")
    assert line[1:] == ["hhhhhhhh", "50.00", "90.00", "1.80", "2.31", "25.6", "2.31", "90.00", "25.6", "+0.0 %"]
    assert cells(text, "chain_9", "### Break-even")[7:9] == ["as measured", "130.00 (extrapolated)"]
    assert "one more token on a chain, drafted and verified, 10.000 ms" in text
    with (tmp_path / "run/summary.csv").open() as f:
        none, _, five, _ = csv.DictReader(f)
    assert [none["round_s"], none["predicted_tok_s"]] == ["", ""]
    assert (five["plain_step_s"], five["round_s"], five["predicted_tok_s"]) == ("0.05", "0.09", five["tok_s"])


def test_undisturbed_rounds_are_compared_where_the_machine_was_not_steady(tmp_path, make):
    """Half of each point's time the machine was twice as slow, but for chain_5's."""
    rows = grid(make, (2, 5, 9))
    for row in rows:
        row |= {"prompt_s": 0.02, "round_spread": 1.0 if row["spec"] == "chain_5" else 1.5}
        row["undisturbed_round_s"] = row["accept_length"] / row["tok_s"]
        row["baseline_undisturbed_round_s"] = 0.05
        row["tok_s"] /= 1 if row["spec"] == "chain_5" else 1.5
    (head,) = heads(rows)
    assert max(map(abs, head.errors)) < 1e-6
    make.put(tmp_path / "run", rows, state=None)
    text = report(tmp_path / "run", intervals).read_text()
    assert "those of the fastest tenth of each point's requests" in text
    line = cells(text, "chain_9", "### Break-even")
    assert line[2:5] == ["50.00", "130.00", "2.60"]
    with (tmp_path / "run/summary.csv").open() as f:
        nine = list(csv.DictReader(f))[-1]
    assert float(nine["undisturbed_tok_s"]) == pytest.approx(1.5 * float(nine["tok_s"]), rel=1e-4)
    steady = [row | {"round_spread": min(row["round_spread"], 1.3)} for row in rows]
    (head,) = heads(steady)
    assert [p.tok_s for p in head.measured] == [row["tok_s"] for row in rows[1:]], "then tok/s as measured"
    rows[2]["undisturbed_round_s"] = None
    (head,) = heads(rows)
    assert max(map(abs, head.errors)) > 0.1, "one that does not know its own: none is compared so"


def test_chains_that_were_not_measured(tmp_path, make):
    make.put(tmp_path / "run", grid(make, (2, 5, 9)), state=None)
    text = report(tmp_path / "run", intervals).read_text()
    # 1 + .6 + .36 at 70 ms: 28.0 tok/s against 20
    assert cells(text, "chain_3", "### Chains predicted") == [
        *("chain_3", "hhhhhhhh", "1.96", "70.00", "1.40", "28.0", "1.40")
    ]
    assert (
        "Best (head hhhhhhhh) of these chains, the measured trees and plain decoding: chain_3 (2 steps, topk 1, 3 "
        "tokens), 28.0 tok/s."
    ) in text
    assert "**Use chain_2 (head hhhhhhhh): 1.33 x plain" in text
    assert ". Predicted, not measured: chain_3 (head hhhhhhhh) would be fastest, at 1.40 x plain decoding" in text
    assert len(re.findall(r"^\| \[?chain_", text.split("### Chains predicted")[1].split("\n### ")[0], re.M)) == 8


def test_a_faster_chain_is_named_as_a_prediction(make):
    rows = grid(make, (2, 9))
    said = faster_chain(heads(rows))
    assert said == (
        "Predicted, not measured: chain_3 (head hhhhhhhh) would be fastest, at 1.40 x plain decoding (28.0 tok/s at "
        "accept length 1.96; no measured point could be left out to check this). Measure it before choosing it: "
        "spec=chain spec.num_draft_tokens=3."
    )
    checked = faster_chain(heads(grid(make, (2, 6, 9))))
    assert "measured points are predicted from the others within 0 %" in checked


@pytest.mark.parametrize("tokens", [(2, 3, 9), (3,), ()])
def test_no_prediction_where_the_best_was_measured_or_nothing_is_determined(make, tokens):
    assert faster_chain(heads(grid(make, tokens))) == ""


def test_plain_decoding_is_a_candidate(make):
    """1.96 tokens in 70 ms against 40 tok/s."""
    found = heads(grid(make, (2, 9), base=40.0))
    assert faster_chain(found) == ""
    assert "plain decoding: plain decoding, 40.0 tok/s." in section(found)[-1]


def test_a_point_measured_against_no_baseline_does_not_hide_the_others(make):
    none, two, nine = grid(make, (2, 9))
    assert "at 1.40 x plain" in faster_chain(heads([none, {**two, "baseline_tok_s": None}, nine]))


def test_a_gain_within_the_noise_of_launches_is_not_named(make):
    # 28.0 tok/s predicted for chain_3
    tree = make.chain(12, 2.5, 27.7, spec="tree_3_4_12", eagle_topk=4, num_steps=3, survival=[0.7, 0.5, 0.3])
    assert faster_chain(heads([*grid(make, (2, 9)), tree])) == ""
    assert "chain_3" in faster_chain(heads([*grid(make, (2, 9)), {**tree, "tok_s": 27.0}]))


def test_one_point_has_its_own_break_even_only(tmp_path, make):
    make.put(tmp_path / "run", grid(make, (5,)), state=None)
    text = report(tmp_path / "run", intervals).read_text()
    assert "too few points to tell what a round would cost elsewhere" in text
    assert cells(text, "chain_5", "### Break-even")[4:] == ["1.80", "2.31", "25.6", "-", "-", "-", "-"]
    assert "Chains predicted" not in text


def test_only_a_baseline_has_no_such_section(make):
    assert section(heads([make.baseline()])) == []


def test_without_a_baseline_speed_is_predicted_and_break_even_is_not(tmp_path, make):
    make.put(tmp_path / "url", grid(make, (2, 5, 9), base=None), state=None)
    text = report(tmp_path / "url", intervals).read_text()
    line = cells(text, "chain_5", "### Break-even")
    assert (line[2], line[4], line[9]) == ("-", "-", "25.6")
    assert cells(text, "chain_3", "### Chains predicted")[4:] == ["-", "28.0", "-"]
    assert "Predicted, not measured" not in text


def test_a_row_without_a_speed_is_left_out(make):
    none, *chains = grid(make, (2, 5, 9))
    (head,) = heads([none, {**chains[0], "tok_s": None}, *chains[1:]])
    assert [p.spec for p in head.measured] == ["chain_5", "chain_9"]


def test_heads_do_not_share_costs(make):
    rows = [*grid(make, (2, 5)), make.chain(9, 2.0, 10.0, head="g")]
    assert [[p.tokens for p in h.measured] for h in heads(rows)] == [[2, 5], [9]]


def test_seeds_are_one_point_whose_survival_is_pooled(tmp_path, make):
    """20 steps each: .5 .25 and .7 .35 are .6 .3; chain_2 of 1.6 tokens."""
    rows = []
    for seed, survival in enumerate([[0.5, 0.25], [0.7, 0.35]]):
        drawn = {"temperature": 0.7, "seed": seed}
        rows.append(make.baseline(10.0, fingerprint=f"{seed}" * 16, **drawn))
        rows += [
            make.chain(n, 1.8, 20.0, base=10.0, survival=survival, **drawn) | {"fingerprint": f"f{seed}{n:014d}"}
            for n in (3, 4)
        ]
    make.put(tmp_path / "seeds", rows, state=None)
    text = report(tmp_path / "seeds", intervals).read_text()
    assert cells(text, "chain_2", "### Chains predicted")[2] == "1.60"
    assert len(re.findall(r"^\| \[chain_3\]", text.split("### Break-even")[1].split("###")[0], re.M)) == 1
    with (tmp_path / "seeds/summary.csv").open() as f:
        assert {r["predicted_tok_s"] for r in csv.DictReader(f)} == {""}, "no row holds a pooled number"


def many(make, directory) -> None:
    """500 conditions x (a baseline and 19 chains), 54 prompts a row, 41 MB: as a year of sweeps would leave them."""
    prompts = {f"prompt_{i}": [60 + i, 40 + i, 128, 1.5 + i / 100] for i in range(54)}
    directory.mkdir()
    with (directory / "rows.jsonl").open("w") as f:
        for i in range(500):
            c = (1, 8, 32)[i % 3]
            own = {"suite": f"suite_{i // 3}", "concurrency": c, "prompts": prompts}
            for row in grid(make, range(2, 21), 200.0 * c, fixed=0.006, each=0.0002):
                tok_s = row["tok_s"] * (1 if row["spec"] == "none" else c)
                changes = {"tok_s": tok_s, "fingerprint": f"{i:08d}{row['num_draft_tokens'] or 0:08d}"}
                f.write(json.dumps({**row, **own, **changes}) + "\n")


def test_ten_thousand_rows_are_reported_in_seconds(tmp_path, make, capsys):
    """4.9 s of CPU time on a busy core of an AMD EPYC; the limit allows for a slow machine."""
    many(make, tmp_path / "year")
    begin = time.process_time()
    text = report(tmp_path / "year", intervals).read_text()
    assert time.process_time() - begin < 15
    assert text.count("\n## tiny") == 500
    assert text.count("<a id=") == 10_000
    assert "Plots are drawn, and points compared, for the first 2 of 500 conditions" in text
    assert "490 more conditions are in report.md." in capsys.readouterr().out
    shutil.rmtree(tmp_path / "year")
