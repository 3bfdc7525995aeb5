"""eagle-lab data: builds the dataset of a config and shows what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eagle_lab.cli.stages import locate_target, outputs
from eagle_lab.config.schema import Config

PREVIEWED = 2


def run(config: Config, out: Path) -> int:
    """Builds (or finds) the dataset under paths.outputs; prints its facts and two rows with the supervised span."""
    from eagle_lab.data.build import build
    from eagle_lab.data.dataset import load
    from eagle_lab.serve.chat import load_tokenizer

    target = locate_target(config)
    done = build(config, target, outputs(config))
    dataset = load(done.path)
    console = Console(highlight=False)
    console.print(facts(dataset, config.draft.vocab_size, target.vocab_size, target.eos_token_ids))
    tokenizer = load_tokenizer(target.path)
    for row in dataset.train[:PREVIEWED]:
        console.print(preview(tokenizer, row))
    console.print(Text(f"{'found' if done.reused else 'made'}: {done.path}"))
    return 0


def facts(dataset: Any, draft_vocab_size: int, vocab_size: int, eos_token_ids: list[int]) -> Table:
    """Counts of a dataset, and how much of its answers a draft vocabulary of this size covers."""
    from eagle_lab.data.vocab_map import build_map, coverage

    manifest = dataset.manifest
    vocab_map = build_map(dataset, draft_vocab_size, vocab_size, eos_token_ids)
    table = Table(title=f"dataset for {manifest['target']}", show_header=False)
    for name, value in {
        "conversations": manifest["conversations"],
        "rows": manifest["rows"],
        "tokens": manifest["tokens"],
        "supervised tokens": f"{manifest['supervised_tokens']} ({manifest['mask_ratio']:.1%} of all)",
        "distinct supervised tokens": manifest["unique_supervised_tokens"],
        "answers that end by themselves": manifest["ends_with_eos"],
        "rows cut at max_length": manifest["cut_at_max_length"],
        "held out": f"{manifest['holdout_rows']} rows of {manifest['holdout_conversations']} conversations",
        f"covered by {draft_vocab_size} draft tokens": ", ".join(
            f"{name} {share:.2%}"
            for name, rows in (("train", dataset.train), ("held out", dataset.holdout))
            if (share := coverage(vocab_map, rows.answer_ids())) is not None
        ),
        **{f"dropped: {reason}": count for reason, count in manifest["dropped"].items()},
    }.items():
        table.add_row(name, str(value))
    return table


def preview(tokenizer: Any, row: Any) -> Text:
    """The row's text: what is not trained dim, what is trained green."""
    text = Text(tokenizer.decode(row.input_ids[: row.answer_start].tolist()), style="dim")
    text.append(tokenizer.decode(row.answer_ids.tolist()), style="bold green")
    return text
