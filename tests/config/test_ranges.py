"""Values that would train or serve garbage die at load, with the value in the message."""

from __future__ import annotations

import pwd
import re
import types
from collections.abc import Callable

import pytest
from hydra.errors import HydraException
from omegaconf import DictConfig

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.explain import explain


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.max_epochs=-4", "trainer.max_epochs=-4: at least 0"),
        ("trainer.batch_size=0", "trainer.batch_size=0: at least 1"),
        ("loss.step_decay=nan", "loss.step_decay=nan"),
        ("draft.vocab_size=0", "draft.vocab_size=0: at least 1"),
        ("draft.head_dim=7", "even"),
        ("server.context_length=-5", "server.context_length=-5"),
        ("server.mem_fraction=9", "server.mem_fraction=9"),
        ("server.stall_timeout_s=0", "server.stall_timeout_s=0.0: seconds above 0"),
        ("server.stall_timeout_s=nan", "server.stall_timeout_s=nan"),
        ("server.dtype=floatx", "server.dtype=floatx"),
        ("suite.temperature=-1", "suite.temperature=-1"),
        ("suite.seed=-1", "suite.seed=-1: at least 0"),
        ("data.answers.concurrency=0", "data.answers.concurrency=0"),
        ("name=../x", "names a directory"),
        ("target.name=a/b", "names a directory"),
        ("track.mode=sometimes", "'sometimes': one of auto, online, offline is wanted"),
        ("trainer.precision=16-mixed", "trainer.precision=16-mixed: one of auto, 32-true, bf16-mixed is wanted"),
        ("trainer.accelerator=tpu", "trainer.accelerator=tpu: one of auto, cpu, gpu, cuda is wanted"),
        ("optim.optimizer._target_=os.system", "_target_=os.system: one of torch.optim.AdamW, "),
        ("optim.optimizer._target_=torch.optim.LBFGS", "_target_=torch.optim.LBFGS: one of "),
        ("optim.warmup_fraction=1.5", "optim.warmup_fraction=1.5"),
        ("data.decontaminate=[smoek]", "no suite 'smoek': there are alpaca, gsm8k, humaneval, mt_bench, smoke"),
        ("data.decontaminate=[no/such.jsonl]", "no file no/such.jsonl"),
        ("suite.name=mt_bench", "no suite 'mt_bench' is shipped"),
        ("suite.path=no.jsonl", "no file no.jsonl"),
        ("data.sources=[{path: no.jsonl}]", "data.sources: no file no.jsonl"),
        ("server.attention_backend=tritn", "attention_backend=tritn with server.kind=gpu: one of triton, flashinfer, "),
        ("server.attention_backend=intel_amx", "attention_backend=intel_amx with server.kind=gpu: one of triton, "),
        ("server.kind=cpu", "attention_backend=triton with server.kind=cpu: one of intel_amx is wanted"),
        ("server.num_threads=2", "server.num_threads=2: not with server=gpu"),
        ("paths.outputs=", "paths.outputs is empty"),
        ("paths.cache=", "paths.cache is empty"),
        ('suite.path="~nobody-here/a.jsonl"', "suite.path=~nobody-here/a.jsonl: no such home directory is known"),
        ('data.sources=[{path: "~nobody-here/a"}]', "data.sources.path=~nobody-here/a: no such home"),
    ],
)
def test_refused_at_load(composed: Callable[..., DictConfig], override: str, message: str) -> None:
    with pytest.raises((HydraException, LabError)) as e:
        load.load(composed("run", override))
    assert re.search(message, explain(e.value))


@pytest.mark.parametrize(
    "url", ["localhost:30000", "http://localhost", "http://h:x", "http://h:99999", "ftp://h:1", "x"]
)
def test_a_url_that_no_server_can_have(composed: Callable[..., DictConfig], url: str) -> None:
    with pytest.raises(LabError, match=f"server.url={url}: http://host:port or https://host:port is wanted"):
        load.load(composed("run", "server=url", f"server.url={url}"))


@pytest.mark.parametrize(("setting", "value"), [("tp", "2"), ("quantization", "fp8")])
def test_what_a_cpu_server_has_not(composed: Callable[..., DictConfig], setting: str, value: str) -> None:
    with pytest.raises(LabError, match=f"server.{setting}={value}: not with server=cpu"):
        load.load(composed("run", "server=cpu", f"server.{setting}={value}"))


def test_the_cache_is_in_the_home_directory(
    composed: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EAGLE_LAB_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert load.load(composed("run")).paths.cache == "/home/me/.cache/eagle_lab"
    assert load.load(composed("run", 'paths.cache="~/mine"')).paths.cache == "/home/me/mine"
    monkeypatch.setenv("EAGLE_LAB_CACHE", "/big/cache")
    assert load.load(composed("run")).paths.cache == "/big/cache"


def test_no_home_directory(composed: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME unset: the user's entry in the password database counts; without one the error says what to set."""
    monkeypatch.delenv("EAGLE_LAB_CACHE", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    user = types.SimpleNamespace(pw_dir="/var/lib/me")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    assert load.load(composed("run")).paths.cache == "/var/lib/me/.cache/eagle_lab"

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(
        LabError, match=r"paths\.cache=~/\.cache/eagle_lab: no such home directory is known here\. Set HOME"
    ):
        load.load(composed("run"))
