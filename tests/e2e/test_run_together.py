"""`run` where others run: two at once share the work, and heads of other options are made beside the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_lab.config.files import read_jsonl
from tests.e2e.conftest import Lab

pytestmark = [pytest.mark.server, pytest.mark.long]
RUN = ("run", "experiment=demo_tiny", "track=none", "hydra.mode=RUN")


@pytest.fixture(scope="module")
def shared(lab: Lab) -> Lab:
    """Two launches of the same command from nothing."""
    first, second = (lab.start(*RUN, "spec=chain_2", "name=twice") for _ in range(2))
    texts = [c.communicate(timeout=600)[0] for c in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), texts
    assert any("waiting for another process" in t for t in texts)
    return lab


def test_two_runs_at_once_share_the_work(shared: Lab) -> None:
    made = ("prompts", "answers", "datasets", "heads", "measurements")
    assert {name: len(list(shared.outputs.glob(f"{name}/*/manifest.json"))) for name in made} == {
        **dict.fromkeys(made, 1),
        "measurements": 2,
    }


@pytest.mark.parametrize("option", ["draft.fc_norm=true", "draft.norm_output=true"])
def test_what_is_trained_with_an_option_is_served_with_it(shared: Lab, option: str) -> None:
    name = option.partition("=")[0].replace("draft.", "")
    code, text = shared.run(*RUN, option, "spec=chain_5", f"name={name}")
    assert code == 0, text
    row = read_jsonl(shared.outputs / f"runs/run/{name}/rows.jsonl")[-1]
    config = json.loads((Path(row["head"]) / "config.json").read_text())
    assert (config["fc_norm"], config["norm_output"]) == (name == "fc_norm", name == "norm_output")
    assert row["replayed_equal"] == row["replayed_requests"] == 16
    # a head of 30 s of training drafts little, 1.01 and 1.04 seen; but without a hit nothing would be compared
    assert row["accept_length"] > 1
    assert row["captured_width"] == 192
