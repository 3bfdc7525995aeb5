"""The probe's judgements on made-up answers, and the proof on the real server: right, and started wrongly by hand."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.schema import ServerKind
from eagle_lab.serve import process
from eagle_lab.serve.client import Client, Completion
from eagle_lab.serve.launch import argv, environment
from eagle_lab.serve.probe import check_counters, check_width, examine, probe
from eagle_lab.serve.running import check_info
from tests.known_acceptance import AUX, known_histogram
from tests.serve.conftest import HEAD, directory

ASKED = {
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/heads/mine",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
WIDTH = len(AUX) * 64
PROMPTS = [[309, 308, 261, 307], [100, 101], [33]]


@pytest.mark.parametrize("info", [ASKED, {**ASKED, "internal_states": [ASKED, ASKED]}])
def test_a_server_that_runs_what_was_asked(info):
    check_info(info, {**ASKED, "speculative_draft_model_path": "/heads/mine/"})


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("speculative_algorithm", "EAGLE", "accept length 1"),
        ("speculative_algorithm", None, "--speculative-algorithm EAGLE3"),
        ("speculative_num_draft_tokens", 8, "rewritten"),
        ("speculative_eagle_topk", 4, "rewritten"),
        ("speculative_draft_model_path", "/heads/other", "Another server"),
    ],
)
@pytest.mark.parametrize("inner", [False, True], ids=["server_info", "internal_states"])
def test_a_server_that_runs_something_else(field, value, said, inner):
    wrong = {**ASKED, field: value}
    with pytest.raises(ServingFault, match=said) as caught:
        check_info({**ASKED, "internal_states": [ASKED, wrong]} if inner else wrong, ASKED)
    assert ("internal_states[1]" in str(caught.value)) is inner
    assert caught.value.exit_code == 3


def test_width(launch):
    check_width(192, 192, 64, launch)
    with pytest.raises(
        ServingFault, match=r"64 wide, 192 = 3 x 64.*\(1\) the server runs --speculative-algorithm EAGLE"
    ):
        check_width(64, 192, 64, launch)
    with pytest.raises(ServingFault, match=r"\(2 streams captured, 3 wanted\)"):
        check_width(128, 192, 64, launch)
    with pytest.raises(ServingFault, match="--enable-return-hidden-states"):
        check_width(None, 192, 64, launch)


def test_a_capture_that_the_head_turns_off_is_shown(launch, tmp_path):
    off = directory(tmp_path / "off", {**HEAD, "eagle_config": {"use_aux_hidden_state": False}})
    with pytest.raises(ServingFault, match="'use_aux_hidden_state': False"):
        check_width(64, 192, 64, replace(launch, head=off))


class Answering:
    def __init__(self, histogram: list[int], proved: list[dict] | None = None) -> None:
        self.histogram, self.proved, self.asked = histogram, proved, 0

    def generate(self, prompts, **_) -> list[Completion]:
        self.asked += 1
        correct = sum(k * n for k, n in enumerate(self.histogram))
        return [
            Completion([1], "", 1, "length", sum(self.histogram), correct, self.histogram, 0, 0, 0, [], None)
        ] * len(prompts)


def test_counters_must_be_the_proofs():
    counters = {"prompt_ids": [5], "verify_ct": 3, "correct_drafts": 4, "histogram": [1, 0, 2]}
    check_counters(Answering([1, 0, 2]), {"counters": [counters]})
    with pytest.raises(ServingFault, match=r"drafts differently.*prompt 0.*'correct_drafts': 0.*'correct_drafts': 4"):
        check_counters(Answering([3]), {"counters": [counters]})
    same, other = Answering([1, 0, 2], [counters]), Answering([1, 0, 2], [{**counters, "prompt_ids": [6]}])
    for client in (same, other):
        check_counters(client, {"counters": [counters]})
    assert (same.asked, other.asked) == (0, 1), "only the very server that gave this proof is not asked again"


@pytest.fixture(scope="module")
def proof(known, tmp_path_factory):
    return probe(replace(known, hidden_states=True), WIDTH, PROMPTS, tmp_path_factory.mktemp("probe") / "server.log")


@pytest.mark.server
def test_a_right_server_is_proved(proof):
    assert proof["captured_width"] == WIDTH
    assert proof["speculative_algorithm"] == "EAGLE3"
    for counted in proof["counters"]:
        histogram = known_histogram(counted["prompt_ids"][-1], 48, 3)
        served = counted["histogram"] + [0] * (4 - len(counted["histogram"]))
        assert served == histogram
        assert counted["verify_ct"] == sum(histogram)
        assert counted["correct_drafts"] == sum(k * n for k, n in enumerate(histogram))


@pytest.mark.server
def test_a_server_started_by_hand_with_eagle_is_caught(known, proof, tmp_path):
    """The mix-up itself: our own command with one word changed, as a user would type it."""
    launch = replace(known, hidden_states=True)
    port = process.free_port("127.0.0.1")
    command = ["EAGLE" if word == "EAGLE3" else word for word in argv(launch, port)]
    assert "EAGLE3" not in command
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, env=environment(launch, os.environ), stdout=out, stderr=out, start_new_session=True
        )
    try:
        client = Client(f"http://127.0.0.1:{port}", 60)
        watch = process.Watch(client, server, log, 180)
        process._wait_healthy(watch, port, 300)
        # SGLang serves it, and answers rightly. This head even drafts well without its fc (it only passes the first
        # state through), so no threshold on the accept length would notice
        done = client.generate([PROMPTS[0]], max_new_tokens=40, ignore_eos=True)[0]
        assert done.token_ids == list(range(308, 348))
        assert done.correct_drafts / done.verify_ct > 1
        with pytest.raises(ServingFault, match=r"speculative_algorithm='EAGLE'.*EAGLE3"):
            examine(client, launch, WIDTH, PROMPTS)
        # and without a word from /server_info: by the width, and by the counters
        width = client.generate([PROMPTS[1]], max_new_tokens=2, return_hidden_states=True)[0].hidden_width
        assert width == 64
        with pytest.raises(ServingFault, match="runs --speculative-algorithm EAGLE"):
            check_width(width, WIDTH, 64, launch)
        with pytest.raises(ServingFault, match="drafts differently"):
            check_counters(client, proof)
        watch.end.set()
    finally:
        process.stop(server)


@pytest.mark.server
@pytest.mark.long
def test_the_server_to_be_timed_is_checked_against_the_proof(known, proof, tmp_path):
    with process.serving(known, tmp_path / "server.log") as client:
        check_counters(client, proof)
        attached = replace(known, server=replace(known.server, kind=ServerKind.url, url=client.base_url))
        with process.serving(attached, tmp_path / "none") as same:
            same.flush()
            prompts = [[t] for t in range(20, 60, 4)]
            one, four = (same.generate(prompts, max_new_tokens=30, concurrency=c, ignore_eos=True) for c in (1, 4))
            assert (
                [c.token_ids for c in one]
                == [c.token_ids for c in four]
                == [list(range(t + 1, t + 31)) for [t] in prompts]
            )
            assert [c.histogram for c in one] == [c.histogram for c in four]
        assert client.healthy()
        with pytest.raises(ServingFault, match="not configured to return hidden states"):
            same.generate([[5]], max_new_tokens=2, return_hidden_states=True)
