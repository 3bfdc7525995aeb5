"""What a typo is answered with: the value, what exists, what was probably meant; never Hydra's `+`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hydra.errors import HydraException
from omegaconf import DictConfig

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.explain import explain

Composed = Callable[..., DictConfig]


def said(composed: Composed, override: str) -> str:
    with pytest.raises((HydraException, LabError)) as e:
        load.load(composed("run", override))
    return explain(e.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("foo=1", "there is no key foo. The config has: name, seed, target, "),
        ("servr=cpu", "there is no key servr. Did you mean server? The config has: "),
        ("server.hots=1", "there is no key server.hots. Did you mean server.host? server has: kind, url, host, "),
        ("max_steps=3", "there is no key max_steps. Did you mean trainer.max_steps?"),
        ("optim.lr=1", "there is no key optim.lr. Did you mean optim.optimizer.lr?"),
        ("+server.hots=1", "there is no key server.hots. Did you mean server.host?"),
        ("data.sources=[{path: a, fromat: auto}]", "no key fromat. Did you mean format? Source has: kind, path, "),
        ("server=cpuu", "server=cpuu: there is no such option. Did you mean server=cpu? server has: cpu, gpu, url."),
        ("experiment=nope", "experiment has: cpu_hour, demo, demo_tiny, smollm2_h200."),
        ("server.kind=bush", "'bush': one of cpu, gpu, url is wanted"),
        ("spec", "'spec' is no KEY=VALUE"),
        ("=a", "Could not override ''. No match in the defaults list."),
        ("target.path=/a(b", "'target.path=/a(b' cannot be read. A text with other characters than a-z, "),
        ("name=ü", "'name=\"...\"'. A name takes letters a-z and A-Z, digits, "),
        ('name="ü"', "name='ü' names a directory. A name takes letters a-z and A-Z, digits, "),
    ],
)
def test_typos(composed: Composed, override: str, message: str) -> None:
    text = said(composed, override)
    assert message in text
    assert "To append" not in text
    assert "\n" not in text


def test_an_optimisers_own_arguments_need_no_plus(composed: Composed) -> None:
    config = load.load(composed("run", "optim.optimizer.eps=1e-6"))
    assert config.optim.optimizer["eps"] == 1e-6
    assert config.optim.optimizer["lr"] == 1e-4
