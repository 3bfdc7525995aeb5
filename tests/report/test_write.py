"""A report is a pure function of the rows; every number in it can be traced."""

import csv
import json
import re
import shutil
from types import SimpleNamespace

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.evaluate import intervals
from eagle_lab.report.load import load
from eagle_lab.report.table import line, show
from eagle_lab.report.write import report
from tests.promised import PROMISED_COLUMNS


def table(directory):
    with (directory / "summary.csv").open() as f:
        return list(csv.DictReader(f))


def test_summary_has_the_promised_columns_first_and_one_row_per_point(sweep):
    report(sweep, intervals)
    assert (sweep / "summary.csv").read_text().startswith(",".join(PROMISED_COLUMNS) + ",")
    rows = table(sweep)
    assert [r["spec"] for r in rows] == ["none", "chain_2", "chain_5"], "the shared baseline once, then by tokens"
    none, _, five = rows
    assert (none["accept_length"], none["speedup"], none["num_steps"], none["captured_width"]) == ("1", "1", "", "")
    assert (five["tok_s"], five["baseline_tok_s"], five["speedup"]) == ("26", "20", "1.3")
    assert (five["aux_layers"], five["survival"], five["head_digest"]) == ("2 4 5", "0.5 0.25", "h" * 16)
    assert five["fingerprint"] == "h5".ljust(16, "f")


def test_same_rows_same_bytes_wherever_and_in_whatever_order(sweep, tmp_path):
    report(sweep, intervals)
    other = tmp_path / "elsewhere" / "grid"
    shutil.copytree(sweep, other, ignore=shutil.ignore_patterns("summary.csv", "report.md", "plots"))
    (other / "a_chain_5").rename(other / "zz")
    (other / "plan.json").write_text((other / "plan.json").read_text().replace("a_chain_5", "zz"))
    report(other, intervals)
    names = ["summary.csv", "report.md", "plots/accept_length.png", "plots/tok_s.png"]
    assert [(sweep / n).read_bytes() for n in names] == [(other / n).read_bytes() for n in names]
    first = [(sweep / n).read_bytes() for n in names]
    report(sweep, intervals)
    assert [(sweep / n).read_bytes() for n in names] == first


def test_heads_of_a_sweep_are_told_apart_by_their_training(sweep):
    assert "trained with" not in report(sweep, intervals).read_text()
    plan = json.loads((sweep / "plan.json").read_text())
    for point in plan["points"]:
        if point["point"] == "a_chain_5":
            point["trained_with"] = "loss.unroll_steps=3"
    (sweep / "plan.json").write_text(json.dumps(plan))
    text = report(sweep, intervals).read_text()
    assert "| spec | trained with | head |" in text
    assert re.search(r"\| \[chain_5\]\(\S+\) \| loss.unroll_steps=3 \| hhhhhhhh \|", text)
    assert re.search(r"\| \[none\]\(\S+\) \| - \| - \|", text), "the shared baseline has no head"
    assert {r["spec"]: r["trained_with"] for r in table(sweep)}["chain_5"] == "loss.unroll_steps=3"


def test_report_names_the_winner_the_failed_and_where_numbers_come_from(sweep, capsys):
    text = report(sweep, intervals).read_text()
    assert "**Use chain_5 (head hhhhhhhh): 1.30 x plain decoding (26.0 against 20.0 tok/s" in text
    assert "| `b_chain_9` | failed | the server \\| died. Look. |" in text
    assert "99.0" not in text, "rows of a point that has failed since are not shown"
    for fingerprint in ("0" * 16, "h2".ljust(16, "f"), "h5".ljust(16, "f")):
        assert f"`{fingerprint}`" in text
    assert "eagle-lab bench spec=none,chain_2 -m" in text
    assert "P(>= k) | 0.50 | 0.25 |" in text
    for name in ("accept_length.png", "tok_s.png"):
        assert (sweep / "plots" / name).read_bytes().startswith(b"\x89PNG")
        assert f"![](plots/{name})" in text
    shown = capsys.readouterr().out
    assert "chain_5" in shown
    assert "FAILED: b_chain_9: the server | died." in shown


def test_a_single_run_directory(tmp_path, make):
    make.put(tmp_path / "run", [make.baseline(), make.chain(5, 2.0, 30.0)], state=None)
    text = report(tmp_path / "run", intervals).read_text()
    assert "eagle-lab bench spec=chain_5" in text
    assert [r["spec"] for r in table(tmp_path / "run")] == ["none", "chain_5"]


def test_two_heads_are_told_apart_and_compared_by_prompt(tmp_path, make):
    make.put(tmp_path / "heads/a", [make.baseline(), make.chain(5, 2.5, 25.0, head="a")])
    better = {"a": [15, 10, 50, 1.6], "b": [25, 10, 50, 1.6]}
    make.put(tmp_path / "heads/b", [make.baseline(), make.chain(5, 3.0, 31.25, head="b", prompts=better)])
    text = report(tmp_path / "heads", intervals).read_text()
    rows = table(tmp_path / "heads")
    assert [(r["spec"], r["head_digest"]) for r in rows] == [("none", ""), ("chain_5", "a" * 16), ("chain_5", "b" * 16)]
    # by prompt 0.5 and 0.5 apart, 50 tokens in 2 against 1.6 seconds
    one, other = (f"[chain_5 (head {8 * h})](#row-{f'{h}5'.ljust(16, 'f')})" for h in "ab")
    assert f"| {one} | {other} | -0.50 (-0.50 to -0.50) | 0.80 (0.80 to 0.80) |" in text


def test_the_specs_of_a_head_are_compared_with_its_fastest(tmp_path, make):
    longer = {"a": [30, 10, 50, 4], "b": [30, 10, 50, 4]}
    rows = [
        make.baseline(),
        make.chain(2, 2.5, 25.0),
        make.chain(5, 4.0, 12.5, prompts=longer),
        make.chain(3, 2.5, 24.0),
    ]
    make.put(tmp_path / "specs", rows, state=None)
    text = report(tmp_path / "specs", intervals).read_text()
    compared = text[text.index("### Compared") : text.index("## Where the numbers")]
    fastest, three, five = (f"[chain_{n} (head hhhhhhhh)](#row-{f'h{n}'.ljust(16, 'f')})" for n in (2, 3, 5))
    assert f"| {three} | {fastest} | 0.00 (0.00 to 0.00) | 0.96 (0.96 to 0.96) |" in compared
    assert f"| {five} | {fastest} | 1.50 (1.00 to 2.00) | 0.50 (0.50 to 0.50) |" in compared
    assert compared.count(fastest) == 2


def test_seeds_are_rows_of_their_own_and_pooled_for_the_verdict(tmp_path, make):
    rows = []
    for seed, (length, tok_s) in enumerate([(2.4, 20.0), (2.6, 30.0)]):
        drawn = {"temperature": 0.7, "seed": seed}
        rows.append(make.baseline(10.0, fingerprint=f"{seed}" * 16, **drawn))
        prompts = {"a": [10 + 4 * seed, 10, 60, 3 - seed], "b": [14 + 4 * seed, 10, 60, 3 - seed]}
        rows.append(make.chain(5, length, tok_s, base=10.0, prompts=prompts, **drawn) | {"fingerprint": f"f{seed}" * 8})
    make.put(tmp_path / "seeds", rows, state=None)
    text = report(tmp_path / "seeds", intervals).read_text()
    assert [(r["spec"], r["seed"]) for r in table(tmp_path / "seeds")] == [
        *(("none", "0"), ("none", "1"), ("chain_5", "0"), ("chain_5", "1"))
    ]
    # 120 tokens in 6 s and in 4 s; 56 correct drafts in 40 steps, by prompt 24 and 32 in 20 each
    seeds = "[0](#row-f0f0f0f0f0f0f0f0) [1](#row-f1f1f1f1f1f1f1f1)"
    assert f"| chain_5 | hhhhhhhh | {seeds} | 2.40 (2.20 to 2.60) | 0.141 | 24.0 | 7.071 |" in text
    seeds = f"[0](#row-{'0' * 16}) [1](#row-{'1' * 16})"
    assert f"| none | - | {seeds} | 1.00 (1.00 to 1.00) | 0.000 | 10.0 | 0.000 |" in text
    assert "**Use chain_5 (head hhhhhhhh): 2.40 x plain decoding (24.0 against 10.0 tok/s" in text
    assert "### Compared" not in text, "seeds are no points to choose between"


def test_greedy_rows_are_never_taken_for_seeds_of_each_other(tmp_path, make):
    twins = [make.baseline(), make.chain(5, 2.0, 30.0), make.chain(5, 2.0, 31.0, fingerprint="other")]
    make.put(tmp_path / "twins", twins, state=None)
    assert "Seeds" not in report(tmp_path / "twins", intervals).read_text()


def test_categories_and_places_in_the_answer(tmp_path, make):
    def length(value, **facts):
        return {"accept_length": value, "low": value - 0.1, "high": value + 0.1, "requests": 2, **facts}

    row = make.chain(
        *(5, 2.0, 30.0),
        categories={"math": length(2.5), "writing": length(1.5) | {"low": None, "high": None}},
        by_position=[length(2.2, **{"from": 1, "to": 32}), length(1.8, **{"from": 33, "to": 64})],
        **{"drift": -0.3, "drift_low": -0.5, "drift_high": -0.1},
    )
    make.put(tmp_path / "more", [make.baseline(), row], state=None)
    text = report(tmp_path / "more", intervals).read_text()
    assert "| spec | head | math | writing |" in text
    assert f"| [chain_5](#row-{row['fingerprint']}) | hhhhhhhh | 2.50 (2.40 to 2.60) | 1.50 |" in text
    assert "tokens 1 to 32, answers | tokens 33 to 64, answers | second half - first half |" in text
    assert "| 2.20 (2.10 to 2.30), 2 | 1.80 (1.70 to 1.90), 2 | -0.30 (-0.50 to -0.10) |" in text
    one = row | {"categories": {"math": length(2.5)}, "fingerprint": "1" * 16}
    make.put(tmp_path / "one", [one], state=None)
    assert "by category" not in report(tmp_path / "one", intervals).read_text()


def test_rows_of_other_conditions_are_not_compared(tmp_path, make):
    busy = {"concurrency": 8}
    make.put(tmp_path / "mixed/a", [make.baseline(), make.chain(5, 2.0, 30.0)])
    make.put(
        tmp_path / "mixed/b",
        [
            make.baseline(200.0, fingerprint="1" * 16, **busy),
            make.chain(5, 2.0, 150.0, base=200.0, fingerprint="2" * 16, **busy),
        ],
    )
    text = report(tmp_path / "mixed", intervals).read_text()
    assert text.count("\n## tiny, suite smoke") == 2
    assert "**Use chain_5" in text
    assert "**No speculation is fastest here" in text
    assert (tmp_path / "mixed/plots/tok_s_2.png").exists()


def test_every_link_leads_to_a_row(sweep):
    text = report(sweep, intervals).read_text()
    rows = re.findall(r'<a id="row-(\w+)">', text)
    assert len(rows) == len(set(rows)) == 3
    assert set(re.findall(r"\(#row-(\w+)\)", text)) == set(rows)


def test_concurrencies_of_one_spec_stand_side_by_side_in_their_order(tmp_path, make):
    for c in (32, 1, 8):
        busy = {"concurrency": c, "suite_digest": "s" * 16}
        base = make.baseline(20.0 * c, fingerprint=f"{c:016d}", **busy)
        five = make.chain(5, 2.0, 30.0 * c**0.9, base=20.0 * c, fingerprint=f"{c:015d}5", **busy)
        make.put(tmp_path / f"grid/{c}", [base, five])
    text = report(tmp_path / "grid", intervals).read_text()
    assert [int(c) for c in re.findall(r"^## tiny.*concurrency (\d+)", text, re.M)] == [1, 8, 32]
    assert "## Against concurrency: tiny, suite smoke (ssssssss), concurrency 1, 8, 32, temperature" in text
    assert "| chain_5 | hhhhhhhh | [30.0 (1.50 x)](#row-" in text
    assert "| none | - | [20.0](#row-0000000000000001) | [160.0](#row-" in text
    for name in ("accept_length", "tok_s", "speedup"):
        assert (tmp_path / f"grid/plots/{name}_concurrency.png").read_bytes().startswith(b"\x89PNG")
        assert f"![](plots/{name}_concurrency.png)" in text
    assert "Against concurrency" not in report(tmp_path / "grid/1", intervals).read_text()


def test_plots_that_are_left_out_are_said(tmp_path, make, capsys):
    rows = [make.baseline(fingerprint=f"{i:016d}", suite=f"s{i:02d}") for i in range(13)]
    make.put(tmp_path / "many", rows, state=None)
    text = report(tmp_path / "many", intervals).read_text()
    assert "Plots are drawn, and points compared, for the first 2 of 13 conditions" in text
    assert len(list((tmp_path / "many/plots").glob("tok_s*.png"))) == 2
    assert "3 more conditions are in report.md." in capsys.readouterr().out


def test_pairs_beyond_the_limit_are_said(tmp_path, make):
    """21 heads at one spec are 210 pairs."""
    rows = [make.chain(5, 2.0, 30.0, head=f"{i:02d}") for i in range(21)]
    make.put(tmp_path / "heads", [make.baseline(), *rows], state=None)
    asked = []
    same = SimpleNamespace(value=1.0, low=None, high=None)
    statistics = SimpleNamespace(
        accept_length_difference=lambda *pair: asked.append(pair) or same, speedup=lambda *pair: same
    )
    text = report(tmp_path / "heads", statistics).read_text()
    assert len(asked) == 200
    assert "More pairs are not compared: a report compares 200 in all." in text


def test_only_failures_are_a_report_too(tmp_path, make):
    make.put(tmp_path / "bad/a", [], "failed", error="no head.")
    make.put(tmp_path / "bad/b", [], "running")
    text = report(tmp_path / "bad", intervals).read_text()
    assert "| `a` | failed | no head. |" in text
    assert "| `b` | running | not finished |" in text
    assert table(tmp_path / "bad") == []


def test_differing_answers_are_listed(tmp_path, make):
    parted = [{"prompt": "tides", "turn": 0, "position": 7, "expected": 3, "found": None}]
    row = make.chain(5, 2.0, 30.0, differing_prompts=1, divergences=parted)
    make.put(tmp_path / "gpu", [make.baseline(), row], state=None)
    text = report(tmp_path / "gpu", intervals).read_text()
    assert f"| [chain_5](#row-{row['fingerprint']}) | hhhhhhhh | tides | 0 | 7 | 3 | None |" in text


def test_bad_directories(tmp_path):
    with pytest.raises(LabError, match="no such directory"):
        report(tmp_path / "absent", intervals)
    (tmp_path / "empty").mkdir()
    with pytest.raises(LabError, match=r"no rows\.jsonl"):
        report(tmp_path / "empty", intervals)
    (tmp_path / "empty/rows.jsonl").write_text('{"spec": "none"}\n')
    with pytest.raises(LabError, match=r"rows\.jsonl, line 1: no value for fingerprint"):
        report(tmp_path / "empty", intervals)


def test_rows_of_a_suite_were_asked_the_same_prompts(tmp_path, make):
    odd = make.chain(5, 2.0, 30.0)
    odd["prompts"] = {**odd["prompts"], "c": [1, 1, 50, 2]}
    make.put(tmp_path / "edited", [make.baseline(), odd], state=None)
    with pytest.raises(LabError, match=r"say the same suite .* but c of 1 prompts are in one of them only"):
        report(tmp_path / "edited", intervals)


def test_a_point_that_the_plan_no_longer_wants_is_no_failure(tmp_path, make):
    make.put(tmp_path / "old", [], state="planned")
    make.put(tmp_path / "new", [make.baseline()])
    (tmp_path / "plan.json").write_text(json.dumps({"argv": ["eagle-lab"], "points": [{"point": "new"}]}))
    assert load(tmp_path).failed == []
    (tmp_path / "plan.json").write_text(json.dumps({"argv": [], "points": [{"point": "new"}, {"point": "old"}]}))
    assert [name for name, _, _ in load(tmp_path).failed] == ["old"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a_chain_5/rows.jsonl", '{"spec": "chain_5", "fin', "line 1: not JSON"),
        ("a_chain_5/rows.jsonl", "[1]\n", "line 1: list found"),
        ("a_chain_5/rows.jsonl", '{"fingerprint": "x"}\n', "line 1: no value for spec"),
        ("a_chain_5/status.json", "[]", "list found"),
        ("a_chain_5/status.json", "{}", "no value for state"),
        ("plan.json", '{"argv": []}', "no value for points"),
        ("plan.json", '{"argv": "x", "points": []}', "argv='x'"),
    ],
)
def test_broken_files_are_named(sweep, name, text, said):
    (sweep / name).write_text(text)
    with pytest.raises(LabError) as e:
        report(sweep, intervals)
    assert str(e.value).startswith(f"{sweep / name}")
    assert said in str(e.value)


def test_what_a_row_does_not_know_may_be_absent(tmp_path, make):
    rows = [{k: v for k, v in make.chain(5, 1.8, 26.0).items() if "speed" not in k and "low" not in k}]
    make.put(tmp_path / "point", rows)
    assert "No baseline was measured" in report(tmp_path, intervals).read_text()


def test_points_of_an_earlier_grid_stay_on_disk_and_out_of_the_tables(sweep):
    plan = json.loads((sweep / "plan.json").read_text())
    kept = [p for p in plan["points"] if p["point"] in ("m_none", "a_chain_5")]
    (sweep / "plan.json").write_text(json.dumps({**plan, "points": kept}))
    report(sweep, intervals)
    assert [r["spec"] for r in table(sweep)] == ["none", "chain_5"]
    assert load(sweep).failed == []
    assert (sweep / "z_chain_2/rows.jsonl").exists()


def test_a_planned_point_without_a_directory_is_named(sweep):
    shutil.rmtree(sweep / "z_chain_2")
    assert ("z_chain_2", "missing") in [(name, state) for name, state, _ in load(sweep).failed]


@pytest.mark.parametrize("heads", ["a", "ab"])
def test_the_terminal_table_shows_every_column_in_80_characters(make, capsys, monkeypatch, heads):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [make.chain(16, 12.3, 1234.5, head=h, spec="tree_10_10_60", differing_prompts=128) for h in heads]
    show([make.baseline(2108.0), *rows], "title")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    for shown in ("accept", "length", "tok/s", "speed-up", "even", "at", "differ", "128", "(12.20-12.40)", "1234.5"):
        assert shown in words
    assert ("aaaaaaaa" in words) == ("bbbbbbbb" in words) == (len(heads) > 1), "one head needs no column"


def test_a_row_in_a_line(make):
    assert line(make.chain(5, 1.3, 65.3, base=100.0)) == (
        "chain_5: accept length 1.30 (1.20 to 1.40), 65.3 tok/s, speed-up 0.65 (0.60 to 0.70)"
    )
    assert line(make.baseline(108.0)) == "none: accept length 1, 108.0 tok/s, speed-up 1 (baseline)"


SPEEDS = ("tok_s", "baseline_tok_s", "speedup", "speedup_low", "speedup_high", "break_even_accept_length")


def untimed(*rows):
    return [{k: v for k, v in row.items() if k not in SPEEDS} for row in rows]


def test_an_untimed_sweep_is_reported_without_speed(make, tmp_path):
    for tokens in (4, 6):
        make.put(tmp_path / f"sweep/chain_{tokens}", untimed(make.baseline(), make.chain(tokens, 2.0, 30.0)))
    text = report(tmp_path / "sweep", intervals).read_text()
    (compared,) = [line for line in text.splitlines() if line.startswith("| [chain_6") and line.endswith("| - |")]
    assert "0.00 (0.00 to 0.00)" in compared


def test_untimed_seeds_are_pooled_without_speed(make, tmp_path):
    for seed in (0, 1):
        rows = [
            {**row, "seed": seed, "temperature": 1.0, "fingerprint": row["fingerprint"][:-1] + str(seed)}
            for row in untimed(make.baseline(), make.chain(4, 2.0 + seed, 30.0))
        ]
        make.put(tmp_path / f"sweep/seed_{seed}", rows)
    text = report(tmp_path / "sweep", intervals).read_text()
    (pooled,) = [line for line in text.splitlines() if line.startswith("| chain_4") and "0.707" in line]
    assert pooled.endswith("| 0.707 | - | - |")
