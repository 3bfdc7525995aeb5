"""Public suites: fetched once and read as they are published; without a network the error says what to run."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.fetch import located, named, prompts
from eagle_lab.config.schema import RowFormat, Source, Suite
from eagle_lab.evaluate.suites import load_suite
from tests.fake_sglang import listening

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "prompts"
# rows of the shape of the published files
PUBLISHED = {
    "mt_bench": '{"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}\n',
    "gsm8k": '{"question": "How many?", "answer": "Two.\\n#### 2"}\n',
    "humaneval": gzip.compress(
        b'{"task_id": "HumanEval/0", "prompt": "def f():\\n", "entry_point": "f", "test": ""}\n'
    ),
    "alpaca": json.dumps([{"instruction": "Name one.", "output": "A.", "generator": "g", "dataset": "koala"}]),
}


def preset(name: str, **changes) -> Suite:
    return replace(named(name), **changes)


@pytest.fixture
def site():
    """(address, {path: content}, paths asked for) of a web server; a path that it does not know is a 404."""
    content: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            asked.append(self.path)
            found = content.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(found or b"")

    with listening(Handler) as url:
        yield url, content, asked


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_is_fetched_once_and_read(site, tmp_path, name):
    address, content, asked = site
    file = preset(name).source.rpartition("/")[2]
    raw = PUBLISHED[name]
    content[f"/data/{file}"] = raw if isinstance(raw, bytes) else raw.encode()
    suite = preset(name, source=f"{address}/data/{file}")
    (found,) = load_suite(located(suite, tmp_path)).conversations
    expected = {
        "mt_bench": ("81", ["Write.", "Again."], "writing"),
        "gsm8k": ("test-1", ["How many?"], None),
        "humaneval": ("HumanEval/0", ["def f():\n"], None),
        "alpaca": ("alpaca_eval-1", ["Name one."], "koala"),
    }
    assert (found.id, found.turns, found.category) == expected[name]
    again = located(suite, tmp_path)
    assert len(asked) == 1
    # the same prompts by hand, so the same measurement
    by_hand = tmp_path / file
    by_hand.write_bytes(content[f"/data/{file}"])
    assert load_suite(preset(name, path=str(by_hand))).digest == load_suite(again).digest


@pytest.mark.parametrize("name", PUBLISHED)
def test_sources_are_public_and_at_a_fixed_revision(name):
    source = preset(name).source
    assert source.startswith("https://")
    assert any(len(part) == 40 and set(part) <= set("0123456789abcdef") for part in source.split("/"))


def test_another_source_is_another_file(site, tmp_path):
    address, content, _ = site
    content["/a/q.jsonl"], content["/b/q.jsonl"] = b'{"turns": ["a"]}', b'{"turns": ["b"]}'
    a, b = (load_suite(located(Suite(name="mine", source=f"{address}/{x}/q.jsonl"), tmp_path)) for x in "ab")
    assert a.conversations[0].turns != b.conversations[0].turns


@pytest.mark.parametrize("base", ["http://127.0.0.1:9", "nonsense", "http://[", "site"])
def test_what_cannot_be_fetched_says_how_to_get_it(site, tmp_path, base):
    source = f"{site[0] if base == 'site' else base}/x/test.jsonl"
    with pytest.raises(LabError) as e:
        located(Suite(name="gsm8k", source=source), tmp_path)
    assert f"suite gsm8k: {source} cannot be fetched to {tmp_path}/suites/gsm8k-" in str(e.value)
    assert f"curl -L -o test.jsonl {source} - then give suite.path=test.jsonl" in str(e.value)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_given_or_shipped_file_is_not_fetched(tmp_path):
    smoke, given = Suite(name="smoke"), preset("gsm8k", path="/some/file.jsonl")
    assert located(smoke, tmp_path) is smoke
    assert located(given, tmp_path) is given
    with pytest.raises(LabError, match="names no file"):
        located(Suite(name="x", source="https://example.org/"), tmp_path)


def test_prompts_to_train_on_are_fetched_too(site, tmp_path):
    address, content, asked = site
    content["/data/train.jsonl"] = b'{"question": "How many?"}\n'
    source = Source(url=f"{address}/data/train.jsonl", format=RowFormat.field, field="question")
    found = prompts(prompts(source, tmp_path), tmp_path)
    assert Path(found.path).read_bytes() == content["/data/train.jsonl"]
    assert (found.url, found.field) == (None, "question")
    assert prompts(source, tmp_path) == found
    assert len(asked) == 1
    with pytest.raises(
        LabError, match=r"data.sources: .*/no.jsonl cannot be fetched to .*then give instead of the url path: no"
    ):
        prompts(Source(url=f"{address}/no.jsonl"), tmp_path)


@pytest.mark.skipif(not SAMPLES.exists(), reason="no sample files beside the checkout")
@pytest.mark.parametrize(("name", "turns"), [("mt_bench", 2), ("gsm8k", 1), ("humaneval", 1), ("alpaca", 1)])
def test_the_questions_in_other_repositories_shape_fit_the_presets(name, turns):
    found = load_suite(preset(name, path=str(SAMPLES / f"{name}.jsonl"))).conversations
    assert len(found) == 80
    assert {len(c.turns) for c in found} == {turns}
