"""`eagle-lab VERB`: exit codes, one-paragraph errors, and answers that need no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eagle_lab.cli.app import VERBS

PROBE = """
import sys
from eagle_lab.cli.app import main
sys.argv = ["eagle-lab", *sys.argv[1:]]
try:
    main()
except SystemExit as e:
    heavy = [m for m in ("torch", "transformers", "lightning", "wandb", "matplotlib") if m in sys.modules]
    print("imported:", heavy)
    sys.exit(e.code)
"""


def eagle_lab(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eagle_lab", *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], 2),
        (["--help"], 0),
        (["-h"], 0),
        (["--version"], 0),
        (["run", "--help"], 0),
        (["bench", "--cfg", "job"], 0),
        (["plan", "--cfg", "job", "target=kimi_k2"], 0),
        (["ls"], 2),
        (["gc"], 2),
    ],
)
def test_answers_without_torch(args: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    assert "imported: []" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_usage_lists_every_verb(tmp_path: Path) -> None:
    text = eagle_lab("--help", cwd=tmp_path).stdout
    assert all(f"\n  {verb}" in text for verb in VERBS)


def test_help_of_a_verb_lists_the_groups(tmp_path: Path) -> None:
    text = eagle_lab("run", "--help", cwd=tmp_path).stdout
    assert "smollm2_135m" in text
    assert "chain_5" in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["trian"], "no verb 'trian'. Did you mean 'train'?"),
        (["bench", "spec=chain"], "spec=chain needs spec.num_draft_tokens"),
        (["bench", "spec=bush"], "bush"),
        (["bench", "server.hots=1"], "there is no key server.hots. Did you mean server.host?"),
        (["bench", "name=ü"], "A name takes letters a-z"),
        (["bench", "--multirun", "spec=glob(xyz*)"], "no points: nothing is matched by spec=glob(xyz*)."),
        (["bench", "-m", "spec=chain", "spec.num_draft_tokens=range(5,5)"], "by spec.num_draft_tokens=range(5,5)."),
        (["bench", "-m", "--cfg", "job"], "--multirun and --cfg exclude each other"),
        (["bench", "--resolve"], "--resolve belongs to --cfg"),
        (["--multirun", "target=tiny"], "no verb. Verbs: data, "),
        (["--multirun", "trian"], "no verb 'trian'. Did you mean 'train'?"),
        (["bench", "+nonsense=1"], "nonsense"),
        (["bench", "trainer.max_steps=many"], "trainer.max_steps=many / 'many': a whole number is wanted"),
        (["bench", "suite.timed=perhaps"], "suite.timed=perhaps / 'perhaps': true or false is wanted"),
        (["bench", "suite=3"], "suite=3: a group takes the name of an option"),
        (["run", "-cn", "draft_tokens"], "Name its folder too: -cd sweeps -cn draft_tokens"),
        (
            ["bench", "-m", "spec=chain_5", "head=nosuch", "dry_run=true"],
            "head=nosuch: no such directory",
        ),
        (["bench", "-m", "spec=nosuch,none"], "spec=nosuch: there is no such option"),
        (["bench", "suite=jsonl"], "no value for suite.name"),
        (["bench", "spec=[unclosed"], "unclosed"),
        (["plan", "dry_run=true"], "belongs to a sweep"),
        # its grid is of spec points, which a training does not read: one training, no sweep
        (["train", "experiment=demo", "server=cpu", "dry_run=true"], "belongs to a sweep"),
        (["point", "/no/such/point"], "no planned sweep point"),
        (["point"], "no verb 'point'"),
        (["run", "experiment=nope"], "nope"),
    ],
)
def test_user_errors_are_one_paragraph_and_exit_2(args: list[str], says: str, tmp_path: Path) -> None:
    done = eagle_lab(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("eagle-lab: ")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_flags_may_stand_before_the_verb(tmp_path: Path) -> None:
    done = eagle_lab("--multirun", "plan", "target=smollm2_135m", "spec=chain_5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "num_draft_tokens 5" in done.stdout
    assert len(list(tmp_path.glob("outputs/plans/plan/*/status.json"))) == 1


@pytest.mark.parametrize(
    "args", [("run",), ("bench", "-m", "spec=none,chain_5"), ("serve", "stay=true"), ("doctor", "spec=chain_5")]
)
def test_a_missing_gpu_is_missed_before_anything_is_made(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = eagle_lab(*args, "server=gpu", "paths.cache=cache", cwd=tmp_path)
    assert done.returncode == 2
    assert "torch sees 0 GPU(s) here. Use server=cpu" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_plan_for_a_gpu_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = eagle_lab("plan", "target=kimi_k2", "server=gpu", "spec=chain_5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[2, 30, 58]" in done.stdout


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("optim.optimizer.beta=1", "refuses {'lr': 0.0001, 'betas': [0.9, 0.95], 'weight_decay': 0.0, 'beta': 1}"),
        ("optim.optimizer.lr=-1", "Invalid learning rate"),
    ],
)
def test_a_plan_tries_the_optimiser(override: str, says: str, tmp_path: Path) -> None:
    done = eagle_lab("plan", override, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_all_illegal_points_are_named_and_none_starts(tmp_path: Path) -> None:
    done = eagle_lab(
        "plan", "--multirun", "spec=chain", "spec.num_draft_tokens=1,5,-2", "target=smollm2_135m", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "2 point(s) of the sweep are illegal; nothing was started" in done.stderr
    assert "spec.num_draft_tokens=1 on a chain" in done.stderr
    assert "spec.num_draft_tokens=-2" in done.stderr
    assert not list(tmp_path.rglob("status.json"))


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_a_grid_s_suites_are_read_before_it_starts(tmp_path: Path, dry_run: str) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text('{"turns": [1]}\n')
    grid = ("--multirun", "spec=none,chain_2", "suite.path=empty.jsonl,bad.jsonl", f"dry_run={dry_run}")
    done = eagle_lab("bench", "server=cpu", "track=none", *grid, cwd=tmp_path)
    assert done.returncode == 2
    assert "2 suite(s) of the sweep cannot be read; nothing was started" in done.stderr
    assert "empty.jsonl" in done.stderr
    assert "bad.jsonl, line 1: user turn 1 is int" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("plan.json"))


def test_a_grid_has_a_point_for_what_the_verb_reads(tmp_path: Path) -> None:
    grid = ("--multirun", "spec=none,chain_5", "suite.limit=4,8", "loss.unroll_steps=1,3", "dry_run=true")
    done = eagle_lab("train", "experiment=demo_tiny", *grid, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "job 2 of 2" in done.stdout


def test_a_rank_ends_without_the_interpreters_end(tmp_path: Path) -> None:
    ending = "import atexit, runpy, sys; atexit.register(print, 'finalised'); sys.argv = ['eagle-lab', *sys.argv[1:]]; "
    ending += "runpy.run_module('eagle_lab', run_name='__main__')"
    said = {}
    for verb in ("rank", "report"):
        command = [sys.executable, "-c", ending, verb, f"results={tmp_path}/none" if verb == "report" else "none"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("eagle-lab: "), done.stderr
        said[verb] = done.stdout
    assert said == {"rank": "", "report": "finalised\n"}
