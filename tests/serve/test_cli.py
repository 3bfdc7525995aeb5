"""eagle-lab serve: what it prints, and the server that it keeps up."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(launch, tmp_path: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "eagle_lab", "serve", "target=known_acceptance", "draft=known_acceptance", "server=cpu",
        "server.context_length=512",
        f"paths.outputs={tmp_path}", f"paths.cache={tmp_path}", *more,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "SGLANG_SIMULATE_ACC_LEN": "3"}


def test_the_command_can_be_pasted(known, tmp_path):
    words = command(known, tmp_path, "spec=chain", "spec.num_draft_tokens=4", f"head={known.head}")
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    comment, line = done.stdout.splitlines()
    assert comment.startswith("#")
    pasted = shlex.split(line)
    assert pasted[pasted.index("--speculative-algorithm") + 1] == "EAGLE3"
    assert pasted[pasted.index("--speculative-draft-model-path") + 1] == str(known.head)
    assert pasted[pasted.index("--port") + 1] == "30000"
    assert pasted[pasted.index("-u") + 1] == "SGLANG_SIMULATE_ACC_LEN"


def test_a_head_of_another_class_is_refused(known, tmp_path):
    bad = tmp_path / "head"
    bad.mkdir()
    config = (known.head / "config.json").read_text()
    (bad / "config.json").write_text(config.replace("LlamaForCausalLMEagle3", "LlamaForCausalLMEagle"))
    (bad / "model.safetensors").symlink_to(known.head / "model.safetensors")
    words = command(known, tmp_path, "spec=chain", "spec.num_draft_tokens=4", f"head={bad}")
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not an EAGLE-3 head" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.server
@pytest.mark.long
def test_it_stays_until_ctrl_c(known, tmp_path):
    words = command(known, tmp_path, "spec=none", "stay=true")
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            lines = [parent.stdout.readline() for _ in range(3)]
            url = lines[2].split()[0]
            assert httpx.get(f"{url}/server_info", timeout=30).json()["speculative_algorithm"] is None
            assert f"--port {url.rsplit(':', 1)[1]} " in lines[1]
            parent.send_signal(signal.SIGINT)
            assert parent.wait(60) == 0
        finally:
            parent.kill()
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{url}/server_info", timeout=5)
