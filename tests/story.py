"""`python -m tests.story HEAD`: a good head of target=smollm2_135m, served rightly and in the ways that cost days.

On the CPU server in float32. Each wrong way is refused before anything is measured, by a check of the head's files or
by what the server says of itself; here it is served all the same, and the name of the check is kept beside what it
costs: the rows of docs/results/story.jsonl.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from eagle_lab.cli.stages import given_head, load_prompts, locate_target
from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.provenance import versions
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.registry import FILES, diagnosis, examine
from eagle_lab.doctor.subject import Subject
from eagle_lab.evaluate import intervals, suites
from eagle_lab.serve.chat import load_tokenizer
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import serving
from eagle_lab.serve.running import differences, speculation
from tests.doctor.corpus import ids, typed
from tests.doctor.prove import as_typed

TABLE = Path(__file__).resolve().parents[1] / "docs/results/story.jsonl"
SETTINGS = ["target=smollm2_135m", "server=cpu", "spec=chain_4", "suite=smoke", "suite.max_new_tokens=64"]
SETTINGS += ["server.max_running_requests=8", "server.context_length=1024", "suite.concurrency=8"]


def same(_config: dict[str, Any], _tensors: object) -> None:
    """The head as it was exported."""


def no_ids(config: dict[str, Any], _tensors: object) -> None:
    del config["eagle_config"], config["eagle_aux_hidden_state_layer_ids"]


# name -> (what is done to the head, what is done to the server's command)
CASES: dict[str, tuple[Callable[..., object], Callable[..., list[str]]]] = {
    "as exported": (same, typed()),
    "served as EAGLE": (same, typed(speculative_algorithm="EAGLE")),
    "SGLang is given the trained ids (one layer too high)": (ids(2, 15, 27), typed()),
    "ids one layer too low": (ids(0, 13, 25), typed()),
    "no ids: SGLang's default layers": (no_ids, typed()),
}


def main(head: Path) -> None:
    load.register()
    with initialize_config_dir(config_dir=str(conf_dir()), version_base="1.3"):
        config = load.load(compose(config_name="bench", overrides=SETTINGS))
    target, prompts, given = locate_target(config), load_prompts(config), given_head(head)
    asked = suites.first_prompts(prompts, load_tokenizer(target.path), len(prompts.conversations))
    rows = []
    for name, (plant, words) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            into = Path(folder)
            served = Launch(target.path, config.server, config.spec, planted(given.path, into / "head", plant), True)
            subject = Subject(config, HeadDirectory(served.head), target)
            named = next((v.check for v in diagnosis(examine(subject, FILES))), None)
            found = measured(served, words, asked, config.suite.max_new_tokens, into)
            found["named"] = named or found["named"]
        rows.append({"what": "story", "case": name, "head_digest": given.digest, "requests": len(asked), **found})
        rows[-1] |= {"max_new_tokens": config.suite.max_new_tokens, "versions": versions()}
        sys.stdout.write(json.dumps(rows[-1]) + "\n")
        sys.stdout.flush()
    TABLE.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def planted(head: Path, copy: Path, plant: Callable[..., object]) -> Path:
    """A copy with another config.json, and without the manifest that would say so."""
    shutil.copytree(head, copy, ignore=shutil.ignore_patterns("manifest.json"))
    config = json.loads((copy / "config.json").read_text())
    plant(config, {})
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def measured(
    launch: Launch, words: Callable[..., list[str]], prompts: list[list[int]], tokens: int, folder: Path
) -> dict[str, Any]:
    """Accept length with its interval, captured width, and whether the server says that it runs something else."""
    with as_typed(lambda argv: words(argv, launch.target, folder)), serving(launch, folder / "server.log") as client:
        info = client.info()
        other = differences(info, speculation(launch))
        width = client.generate(prompts[:1], max_new_tokens=4, return_hidden_states=True)[0].hidden_width
        done = client.generate(prompts, max_new_tokens=tokens, concurrency=8)
    found = intervals.accept_length({str(i): [d.correct_drafts, d.verify_ct] for i, d in enumerate(done)})
    return {
        "speculative_algorithm": info["speculative_algorithm"],
        "captured_width": width,
        "accept_length": found.value,
        "accept_length_low": found.low,
        "accept_length_high": found.high,
        "survival": intervals.survival(intervals.pooled_histogram(d.histogram for d in done)),
        "sglang_version": info.get("version"),
        "named": "served as EAGLE-3" if other else None,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
