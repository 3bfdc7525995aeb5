"""Launch -> argv, environment, command line: what is stated, and what can never be said."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Server, ServerKind, Spec, SpecKind
from eagle_lab.serve.launch import CPU_OPERATORS, Launch, argv, command_line, environment, import_environment

GPU = Server(kind=ServerKind.gpu, context_length=1024, max_running_requests=8)


def options(words: list[str]) -> dict[str, str | None]:
    """Flag -> value (None for a switch); fails on a flag that is stated twice."""
    found: dict[str, str | None] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            assert word not in found, f"{word} is stated twice"
            found[word] = None if after.startswith("--") else after
    return found


def test_everything_that_changes_a_number_is_stated(launch):
    found = options(argv(launch, 30123))
    assert found == {
        "--model-path": str(launch.target),
        "--host": "127.0.0.1",
        "--port": "30123",
        "--tp-size": "1",
        "--dtype": "float32",
        "--context-length": "512",
        "--max-running-requests": "4",
        "--mem-fraction-static": "0.1",
        "--max-total-tokens": "4096",
        "--page-size": "1",
        "--sampling-backend": "pytorch",
        "--grammar-backend": "none",
        "--random-seed": "0",
        "--decode-log-interval": "1",
        "--device": "cpu",
        "--prefill-attention-backend": "intel_amx",
        "--decode-attention-backend": "intel_amx",
        "--cuda-graph-backend-prefill": "disabled",
        "--cuda-graph-backend-decode": "disabled",
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": str(launch.head),
        "--speculative-num-steps": "3",
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "4",
        "--disable-radix-cache": None,
        "--skip-server-warmup": None,
        "--sleep-on-idle": None,
    }


def test_gpu(launch):
    found = options(argv(replace(launch, server=GPU, hidden_states=True), 1))
    assert found["--attention-backend"] == "triton"
    assert found["--cuda-graph-max-bs-decode"] == "8"
    assert found["--cuda-graph-backend-prefill"] == "disabled"
    assert "--enable-return-hidden-states" in found
    absent = {"--device", "--max-total-tokens", "--quantization", "--cuda-graph-backend-decode", "--sleep-on-idle"}
    absent |= {"--decode-log-interval"}
    assert not absent & set(found)


def test_a_quantised_target_leaves_the_head_alone(launch):
    found = options(argv(replace(launch, server=replace(GPU, quantization="fp8")), 1))
    assert (found["--quantization"], found["--speculative-draft-model-quantization"]) == ("fp8", "unquant")


def test_a_target_as_it_is_leaves_the_head_to_sglang(launch):
    assert "--speculative-draft-model-quantization" not in options(argv(replace(launch, server=GPU), 1))


def test_a_target_on_several_gpus(launch):
    assert options(argv(replace(launch, server=replace(GPU, tp=4)), 1))["--tp-size"] == "4"


def test_the_seed_is_the_servers(launch):
    assert options(argv(replace(launch, seed=7), 1))["--random-seed"] == "7"


def test_plain_decoding_says_nothing_of_speculation(plain):
    assert not [w for w in argv(plain, 1) if "speculative" in w]


TEXT_FIELDS = [f.name for f in fields(Server) if f.type in ("str", "str | None") and f.name != "url"]


@pytest.mark.parametrize("field", TEXT_FIELDS)
@pytest.mark.parametrize("value", ["EAGLE", "x --speculative-algorithm EAGLE"])
def test_a_text_of_the_config_stays_one_value(launch, field, value):
    server = replace(GPU)
    setattr(server, field, value)
    words = argv(replace(launch, server=server), 1)
    assert words.count(value) == 1
    assert [words[i + 1] for i, w in enumerate(words) if w.startswith("--speculative-a")] == ["EAGLE3"]


@pytest.mark.parametrize("field", TEXT_FIELDS)
@pytest.mark.parametrize("value", ["--speculative-algorithm=EAGLE", "--speculative-algo", "-x"])
def test_a_text_that_would_be_a_flag_is_refused(launch, field, value):
    server = replace(GPU)
    setattr(server, field, value)
    with pytest.raises(LabError, match="cannot start with a dash"):
        argv(replace(launch, server=server), 1)


def test_speculation_and_head_go_together(launch, plain):
    with pytest.raises(LabError, match="needs a head"):
        argv(replace(launch, head=None), 1)
    with pytest.raises(LabError, match="takes none"):
        argv(replace(plain, head=launch.head), 1)


def test_a_running_server_has_no_command(plain):
    with pytest.raises(LabError, match="runs already"):
        argv(replace(plain, server=Server(kind=ServerKind.url, url="http://127.0.0.1:1")), 1)


def test_a_context_beyond_the_target_is_refused(plain):
    with pytest.raises(LabError, match="2048 positions"):
        argv(replace(plain, server=replace(plain.server, context_length=2049)), 1)


def test_environment(launch):
    base = {
        "PATH": "/bin",
        "PYTHONPATH": "/mine",
        "SGLANG_SIMULATE_ACC_LEN": "4",
        "SGLANG_SIMULATE_ACC_METHOD": "x",
        "SGLANG_SIMULATE_ACC_ANYTHING_NEW": "1",
        "TRITON_INTERPRET": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    before = dict(base)
    found = environment(launch, base)
    assert base == before
    assert not [k for k in found if "SIMULATE" in k or k in ("TRITON_INTERPRET", "PYTHONDONTWRITEBYTECODE")]
    assert found["PATH"] == "/bin"
    assert found["PYTHONPATH"] == f"{CPU_OPERATORS}{os.pathsep}/mine"
    assert found["OMP_NUM_THREADS"] == found["MKL_NUM_THREADS"] == str(os.cpu_count())
    assert (found["SGLANG_USE_CPU_ENGINE"], found["HF_HUB_OFFLINE"], found["TRANSFORMERS_OFFLINE"]) == ("1", "1", "1")
    few = environment(replace(launch, server=replace(launch.server, num_threads=1)), base)
    assert few["OMP_NUM_THREADS"] == few["MKL_NUM_THREADS"] == "1"


def test_a_gpu_server_gets_no_cpu_operators(launch):
    found = environment(replace(launch, server=GPU), {"PYTHONPATH": "/mine", "SGLANG_SIMULATE_ACC_LEN": "4"})
    assert found == {"PYTHONPATH": "/mine", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def test_the_command_line_is_the_same_server(launch):
    words = shlex.split(command_line(launch, 30123))
    at = words.index("python")
    assert words[at + 1 :] == argv(launch, 30123)[1:]
    assert words[0] == "env"
    settings = dict(w.split("=", 1) for w in words[1:at] if "=" in w)
    assert settings == environment(launch, {})
    assert [words[i + 1] for i, w in enumerate(words[:at]) if w == "-u"] == [
        "SGLANG_SIMULATE_ACC_LEN",
        "SGLANG_SIMULATE_ACC_METHOD",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE",
    ]


def test_import_environment_stays_on_the_cpu():
    found = import_environment({"CUDA_VISIBLE_DEVICES": "0", "TRITON_INTERPRET": "1", "HOME": "/h"})
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert found["PYTHONPATH"] == str(CPU_OPERATORS)
    assert "TRITON_INTERPRET" not in found


def test_a_tree_states_its_three_numbers(launch: Launch):
    found = options(argv(replace(launch, spec=Spec(SpecKind.tree, 3, 4, 12)), 1))
    assert [found[f"--speculative-{n}"] for n in ("num-steps", "eagle-topk", "num-draft-tokens")] == ["3", "4", "12"]


def test_operators_are_where_the_package_says():
    assert (Path(CPU_OPERATORS) / "sgl_kernel" / "__init__.py").exists()
    assert (Path(CPU_OPERATORS) / "sitecustomize.py").exists()
