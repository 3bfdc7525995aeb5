"""A server that runs already must run what the config says; what differs is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import ServerKind
from eagle_lab.serve.process import serving
from eagle_lab.serve.running import check_running
from tests.fake_sglang import fake_sglang, info_of
from tests.serve.conftest import HEAD, TARGET, directory


def changed(launch, **fields):
    info = info_of(launch)
    return {**info, **fields, "internal_states": [{**info["internal_states"][0], **fields}]}


def test_the_server_that_was_asked_for(launch, plain):
    check_running(info_of(launch), launch)
    check_running(info_of(plain), plain)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_path": "/other/model", "served_model_name": "m"}, "model_path='/other/model'"),
        ({"dtype": "bfloat16"}, "dtype='bfloat16' (/server_info), asked for was 'float32'. Set server.dtype=bfloat16"),
        ({"dtype": None}, "dtype=None"),
        ({"context_length": 1024}, "context_length=1024 (/server_info), asked for was 512"),
        # the target's own 2048
        ({"context_length": None}, "Set server.context_length=2048"),
        ({"quantization": "fp8"}, "quantization='fp8'"),
        ({"speculative_algorithm": "EAGLE"}, "accept length 1"),
        ({"speculative_algorithm": None}, "--speculative-algorithm EAGLE3"),
        ({"speculative_num_steps": 7}, "speculative_num_steps=7"),
        ({"speculative_eagle_topk": 4}, "speculative_eagle_topk=4"),
        ({"speculative_num_draft_tokens": 8}, "speculative_num_draft_tokens=8"),
        ({"speculative_draft_model_path": "/other/head"}, "speculative_draft_model_path='/other/head'"),
    ],
)
def test_another_server(launch, fields, said):
    with pytest.raises(ServingFault) as e:
        check_running(changed(launch, **fields), launch)
    assert said in str(e.value)
    assert str(e.value).count("asked for was") == 1, "nothing else differs, and each field is said once"
    assert e.value.exit_code == 3


def test_all_that_differs_is_listed(launch):
    with pytest.raises(ServingFault) as e:
        check_running({"version": "0"}, launch)
    assert str(e.value).count("asked for was") == 8


def test_a_speculating_server_is_no_plain_one(launch, plain):
    with pytest.raises(ServingFault, match=r"speculative_algorithm='EAGLE3'.*None\. Give its head and numbers"):
        check_running(info_of(launch), plain)


@pytest.mark.parametrize(
    "fields",
    [
        {"model_path": "/elsewhere/target"},
        {"model_path": "/not/known/here", "served_model_name": "target"},
        {"dtype": "float"},
        {"speculative_draft_model_path": "{head}/../head/"},
    ],
)
def test_the_same_by_another_name(launch, fields):
    check_running(changed(launch, **{k: v.format(head=launch.head) for k, v in fields.items()}), launch)


def test_hub_ids_and_types_that_were_left_to_sglang(launch, tmp_path):
    path = directory(tmp_path / "hub/models--org--name/snapshots/0123", TARGET | {"dtype": "bfloat16"})
    asked = replace(launch, target=path, server=replace(launch.server, dtype="bfloat16"))
    check_running(changed(asked, model_path="org/name", served_model_name="org/name", dtype="auto"), asked)
    directory(path, TARGET)
    with pytest.raises(ServingFault, match="dtype='float16'"):
        check_running(changed(asked, dtype="auto"), asked)


def test_a_pair_that_launching_would_refuse_is_refused_here_too(launch):
    directory(launch.head, HEAD | {"vocab_size": 511})
    with pytest.raises(LabError, match="vocab_size=511"):
        check_running(info_of(launch), launch)
    directory(launch.head, HEAD | {"max_position_embeddings": 128})
    with pytest.raises(LabError, match=r"128 is below server\.context_length=512"):
        check_running(info_of(launch), launch)


def test_serving_by_url_compares_before_anything_is_asked(launch, tmp_path):
    def at(url):
        return replace(launch, server=replace(launch.server, kind=ServerKind.url, url=url))

    with fake_sglang(info_of(launch)) as url, serving(at(url), tmp_path / "log") as client:
        assert client.info()["version"] == "0.5.20"
    with (
        fake_sglang(changed(launch, dtype="float16", speculative_num_steps=9)) as url,
        pytest.raises(ServingFault, match=r"speculative_num_steps=9.*dtype='float16'"),
        serving(at(url), tmp_path / "log"),
    ):
        pytest.fail("another server")
    with (
        fake_sglang([1]) as url,
        pytest.raises(ServingFault, match="No SGLang server answers there"),
        serving(at(url), tmp_path / "log"),
    ):
        pytest.fail("no SGLang")
