"""The alarm when served falls short of the replay, and what it names first."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_lab.report.diagnosis import alarm, note, promises


def row(**changes: Any) -> dict[str, Any]:
    """A GPU row whose server accepts what the replay predicts."""
    return {
        "spec": "chain_3",
        "head_digest": "abcdef0123456789",
        "fingerprint": "0123456789abcdef",
        "server_kind": "gpu",
        "dtype": "bfloat16",
        "accept_length": 1.9,
        "survival": [0.6, 0.3],
        "replayed_requests": 16,
        "replayed_equal": 11,
        "replayed_accept_length": 1.91,
        "replayed_served_accept_length": 1.9,
        "replayed_difference": -0.01,
        "replayed_difference_low": -0.06,
        "replayed_difference_high": 0.04,
        "replayed_served_survival": [0.6, 0.3],
        "replayed_survival": [0.6, 0.31],
        "proxy_accept_length": 2.0,
        "proxy_survival": [0.65, 0.35],
        "coverage": 0.98,
        **changes,
    }


def test_no_alarm_where_serving_is_what_was_trained() -> None:
    assert alarm(row()) == []
    assert note(row()) is None


def test_what_was_not_checked_is_said() -> None:
    unchecked = {"spec": "chain_3", "head_digest": "abcdef0123456789", "unchecked": "the target does not fit"}
    assert note(unchecked) == (
        "chain_3 (head abcdef01): neither replayed nor judged for losslessness: the target does not fit."
    )


def test_no_alarm_without_a_replay() -> None:
    assert alarm({"spec": "tree_3_4_12", "survival": [0.6]}) == []


SHORT = {"replayed_difference": -0.5, "replayed_difference_low": -0.6, "replayed_difference_high": -0.4}


def test_a_shortfall_at_the_first_draft_points_at_the_layers() -> None:
    finding, *causes = alarm(row(**SHORT, replayed_served_survival=[0.2, 0.1]))
    assert finding.startswith("chain_3 (head abcdef01): served accept length 1.90, but our own head code gives 1.91")
    assert "-0.60 to -0.40; 11 of 16 requests equal" in finding
    assert causes[0].startswith("(1) the aux layer ids")
    assert len(causes) == 6


def test_a_row_from_before_there_was_the_column_is_judged_by_all_its_requests() -> None:
    old = {k: v for k, v in row(**SHORT, survival=[0.2, 0.1]).items() if k != "replayed_served_survival"}
    assert alarm(old)[1].startswith("(1) the aux layer ids")


def test_a_shortfall_further_down_points_at_the_positions() -> None:
    _, *causes = alarm(row(**SHORT, replayed_served_survival=[0.6, 0.02]))
    assert causes[0].startswith("(1) rope_parameters")


def test_an_interval_that_reaches_the_replay_is_no_alarm() -> None:
    assert alarm(row(**{**SHORT, "replayed_difference_high": -0.02})) == []


@pytest.mark.parametrize(("equal", "alarms"), [(16, False), (15, True)])
def test_in_float32_on_a_cpu_every_request_must_be_equal(equal: int, alarms: bool) -> None:
    exact = row(server_kind="cpu", dtype="float32", replayed_equal=equal)
    assert bool(alarm(exact)) == alarms


def test_one_prompt_has_no_interval_and_still_an_alarm() -> None:
    assert alarm(row(replayed_difference=-0.5, replayed_difference_low=None, replayed_difference_high=None))


def test_text_unlike_the_training_data_is_a_note_and_no_alarm() -> None:
    far = row(proxy_accept_length=2.5)
    assert alarm(far) == []
    assert "held-out proxy is 2.50, the replay of 16 served requests gives 1.91" in note(far)
    assert "covers 98.0 %" in note(far)


def test_the_table_has_proxy_replay_and_served_per_position() -> None:
    header, cells = promises([row(), {"spec": "none", "survival": []}])
    assert header == ["spec", "head", "", "accept length", "k=1", "k=2"]
    assert cells[0][0] == "[chain_3](#row-0123456789abcdef)"
    assert [c[2:] for c in cells] == [
        ["training proxy (held out)", "2.00", "0.65", "0.35"],
        ["replayed over served tokens", "1.91", "0.60", "0.31"],
        ["served", "1.90", "0.60", "0.30"],
    ]
