"""The line that says which point to use."""

from eagle_lab.report.verdict import verdict


def test_a_clear_winner_with_what_it_would_take_to_lose(make):
    text = verdict([make.baseline(), make.chain(2, 1.4, 24.0), make.chain(5, 2.0, 40.0)])
    assert text.startswith("Use chain_5 (head hhhhhhhh): 2.00 x plain decoding")
    assert "costs as much as 1.00 plain tokens" in text
    assert "Within" not in text


def test_points_within_the_winners_interval_are_named(make):
    text = verdict([make.baseline(), make.chain(4, 1.9, 39.5), make.chain(5, 2.0, 40.0)])
    assert text.endswith("Within its interval: chain_4 (head hhhhhhhh).")


def test_the_baseline_wins_and_the_break_even_is_said(make):
    # 1.5 accepted at half the speed: a round costs three plain tokens
    text = verdict([make.baseline(), make.chain(5, 1.5, 10.0), make.chain(9, 1.5, 8.0)])
    assert text.startswith("No speculation is fastest here: the best point, chain_5 (head hhhhhhhh), runs at 0.50 x")
    assert "5 draft tokens would need accept length 3.00 to break even; measured is 1.50" in text


def test_an_advantage_within_noise_is_undecided(make):
    text = verdict([make.baseline(), make.chain(5, 1.5, 20.4)])
    assert text.startswith("Undecided: chain_5")
    assert "0.97 to 1.07" in text
    alone = make.chain(5, 1.5, 30.0, speedup_low=None, speedup_high=None)
    assert verdict([make.baseline(), alone]).startswith("Undecided")


def test_no_baseline_and_nothing_but_a_baseline(make):
    assert "no spec point" in verdict([make.baseline()])
    lone = make.chain(5, 1.5, 30.0, speedup=None)
    assert "No baseline was measured" in verdict([lone])
    untimed = lone | {"tok_s": None}
    assert verdict([make.baseline(tok_s=None), untimed]).startswith(
        "Nothing was timed (suite.timed=false), so no speed"
    )


def test_speeds_that_were_timed_too_briefly_are_said_to_be(make):
    rows = [make.baseline(steady_s=20.0), make.chain(5, 2.0, 40.0, steady_s=0.27), make.chain(2, 1.4, 24.0, steady_s=9)]
    assert "Do not choose by these speeds: chain_5 (head hhhhhhhh) was timed over 0.3 s" in verdict(rows)
    rows[1]["steady_s"] = 5.0
    assert "Do not choose" not in verdict(rows)


def test_a_machine_that_was_slower_for_one_point_is_said_to_have_been(make):
    rows = [make.baseline(prompt_s=0.01), make.chain(5, 2.0, 40.0, prompt_s=0.03), make.chain(3, 1.6, 25.0)]
    assert "equally fast" not in verdict(rows), "of rows without it nothing is known"
    rows[2]["prompt_s"] = 0.032
    assert "equally fast" not in verdict(rows)
    rows[2]["prompt_s"] = 0.045
    text = verdict(rows)
    assert "1.50 x slower while chain_3 (head hhhhhhhh) was timed than while chain_5 (head hhhhhhhh) was" in text
    assert f"remove measurements/{rows[2]['measurement']} under" in text
    rows[1]["round_spread"] = 1.5
    assert "equally fast" not in verdict(rows), "its rounds were as often slow as that one's prompts"
    rows[1]["round_spread"] = 1.0
    rows[2]["head_digest"] = "g" * 16
    assert "equally fast" not in verdict(rows), "another head's prompts are other work"
