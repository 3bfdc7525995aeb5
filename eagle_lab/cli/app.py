"""`eagle-lab VERB [overrides]`: composes the config with Hydra, then runs the verb's body, or a sweep of it.

Under --multirun Hydra only expands the grid: each composed point is typed and checked, all illegal ones are named at
once, and only then does `sweep` run the points, each in a child process.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from eagle_lab.config.schema import Config
    from eagle_lab.sweep.points import Point

VERBS = {
    "data": "prompts and the target's answers -> tokens with a loss mask",
    "features": "capture the target's states of the dataset to disk, for trainer.capture=stored",
    "train": "train the draft head",
    "export": "write the head as an SGLang directory and verify it",
    "serve": "print the exact server command; stay=true keeps the server up",
    "bench": "measure accept length and speed of a spec point, with its baseline",
    "doctor": "check a head and a server for the silent failures",
    "plan": "what a config resolves to and costs, before anything starts",
    "bench-ops": "time the head's ops and the whole training step, beside the reference",
    "report": "rows -> summary.csv, report.md, plots",
    "run": "all of it: data, train, export, bench, report",
    "ls": "what lies in outputs and cache, or the points of a sweep (results=DIR)",
    "gc": "what of it may go, and why; remove=true removes it",
}

SERVING = ("run", "bench")
"""They always start a server; `serve` does with stay, `doctor` with a chain, `data`, `train` and `export` where answers
are missing."""

ONE_CONFIG = ("plan", "doctor", "serve")
"""They look at one config; an experiment's own grid is for those that measure. --multirun asks for it all the same."""

LOOKING = ("ls", "gc")
"""They look at all that there is, once, and leave no directory of their own."""

USAGE = """eagle-lab: train EAGLE-3 draft heads and prove how well they serve.

usage: eagle-lab VERB [group=option] [key=value] [--multirun] [--cfg job] [--help]

{verbs}

`eagle-lab VERB --help` lists the groups and their options, `--cfg job` prints the composed config.
  eagle-lab run target=smollm2_135m spec=chain spec.num_draft_tokens=5 server=cpu
  eagle-lab run experiment=demo server=cpu
"""


def main() -> NoReturn:
    argv = sys.argv[1:]
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.exit(guarded(lambda: _usage(0 if argv else 2)))
    if argv[0] == "--version":
        from eagle_lab import __version__

        print(__version__)
        sys.exit(0)
    if argv[0] == "point" and argv[1:]:
        sys.exit(guarded(lambda: _job([Path(a) for a in argv[1:]])))
    if argv[0] == "rank" and argv[1:]:
        code = guarded(lambda: _rank(Path(argv[1])))
        sys.stdout.flush()
        sys.stderr.flush()
        # not sys.exit: a thread of gloo that lets go of a tensor while the interpreter ends aborts the process, which
        # 4 of 30 small FSDP processes did (torch 2.13, Python 3.11)
        os._exit(code)
    if argv[0] == "ranks" and argv[2:]:
        from eagle_lab.train.launch import torchrun

        sys.exit(torchrun(int(argv[1]), Path(argv[2])))
    verb = next((a for a in argv if a in VERBS), None)  # flags may stand before it
    if verb is None:
        said = next((a for a in argv if not a.startswith("-") and "=" not in a), None)
        near = get_close_matches(said or "", VERBS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        print(f"eagle-lab: no verb{f' {said!r}' if said else ''}.{hint} Verbs: {', '.join(VERBS)}.", file=sys.stderr)
        sys.exit(2)
    argv.remove(verb)
    if verb == "doctor":  # a flag that other tools have; hydra's parser knows only its own
        argv = ["doctor.json=true" if a == "--json" else a for a in argv]
    sys.exit(guarded(lambda: _compose(verb, argv)))


def _usage(code: int) -> int:
    print(USAGE.format(verbs="\n".join(f"  {v:11s}{text}" for v, text in VERBS.items())), flush=True)
    return code


def _rank(directory: Path) -> int:
    from eagle_lab.cli.rank import run_rank
    from eagle_lab.config import load

    load.register()
    return run_rank(directory)


def guarded(action: Callable[[], int]) -> int:
    """The action's exit code; an error that a user can act on becomes one paragraph on stderr and its exit code."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from eagle_lab.config.errors import LabError
    from eagle_lab.config.explain import explain

    try:
        return action()
    except LabError as e:
        print(f"eagle-lab: {e}", file=sys.stderr)
        return e.exit_code
    except (HydraException, OmegaConfBaseException) as e:
        print(f"eagle-lab: config: {explain(e)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # else the interpreter would try once more at its end, and say so
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        if e.filename is None and e.errno is None:
            raise
        where = f"{e.filename}: " if e.filename else ""
        print(f"eagle-lab: {where}{e.strerror}. Give another place (paths.outputs, paths.cache).", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("eagle-lab: stopped; the same command takes up the work where it is.", file=sys.stderr)
        return 130


def _compose(verb: str, rest: list[str]) -> int:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import DictConfig

    from eagle_lab.cli.hydra_files import remove_if_empty
    from eagle_lab.config import load
    from eagle_lab.config.errors import LabError
    from eagle_lab.config.paths import conf_dir

    load.register()
    # hydra then hands its exceptions to guarded() instead of printing them and exiting with 1
    os.environ["HYDRA_FULL_ERROR"] = "1"
    composed: list[tuple[list[str], Config]] = []
    refused: list[str] = []
    multirun, out, single = False, Path(), Path()

    def task(cfg: DictConfig) -> None:
        nonlocal multirun, out, single
        hydra_cfg = HydraConfig.get()
        single = Path(hydra_cfg.run.dir)
        multirun = hydra_cfg.mode == RunMode.MULTIRUN
        out = Path(hydra_cfg.runtime.output_dir)
        overrides = list(hydra_cfg.overrides.task)
        try:
            composed.append((overrides, load.load(cfg)))
        except LabError as e:
            refused.append(f"{', '.join(overrides)}: {e}" if multirun else str(e))

    # hydra's parser takes overrides only in one piece; people write `run target=x --multirun spec=a,b`
    overrides = [a for a in rest if "=" in a and not a.startswith("-")]
    flags = [a for a in rest if a not in overrides]
    if verb in ONE_CONFIG and not {"-m", "--multirun"} & set(flags) and not any("hydra.mode" in o for o in overrides):
        overrides.append("hydra.mode=RUN")
    sys.argv = [f"eagle-lab {verb}", *flags, *overrides]
    shows = _only_shows(verb, sys.argv[1:])
    with _hydras_own(overrides):
        hydra.main(config_path=str(conf_dir()), config_name=verb, version_base="1.3")(task)()
    if refused:
        if verb not in LOOKING:
            remove_if_empty(out)
        many = f"{len(refused)} point(s) of the sweep are illegal; nothing was started.\n" if multirun else ""
        raise LabError(many + "\n".join(refused))
    if shows:
        return 0
    if not composed:
        empty = [o for o in overrides if "(" in o]
        raise LabError(
            f"the sweep has no points: nothing is matched by {', '.join(empty) or 'hydra.sweeper.params'}. "
            f"`eagle-lab {verb} --help` lists the options of each group."
        )
    return _start(verb, composed, out if multirun else None, single)


def _start(verb: str, composed: list[tuple[list[str], Config]], sweep: Path | None, single: Path) -> int:
    """sweep, single: where a grid's points go, and a run of its own."""
    from eagle_lab.config.errors import LabError
    from eagle_lab.sweep.points import name_points

    for _, config in composed:
        _check_machine(verb, config)
    if sweep is not None:
        _check_suites(verb, composed)
        points = name_points(sweep, verb, composed)
        # one of several: an experiment's grid is of what this verb does not read, as `data` does not read specs
        if len(points) > 1 or len(composed) == 1:
            return _sweep(verb, sweep, points)
    if composed[0][1].dry_run:
        raise LabError("dry_run=true belongs to a sweep: add --multirun and what it varies, or use `eagle-lab plan`.")
    return body(verb)(composed[0][1], single)


def _check_suites(verb: str, composed: list[tuple[list[str], Config]]) -> None:
    """LabError that names all suites of a grid that cannot be read, before its first server starts.

    A public one is fetched for it, but not for a dry run.
    """
    from eagle_lab.cli.stages import load_prompts
    from eagle_lab.config.digest import digest, plain
    from eagle_lab.config.errors import LabError
    from eagle_lab.sweep.jobs import MEASURING

    if verb not in MEASURING:
        return
    refused: list[str] = []
    seen = set()
    for _, config in composed:
        suite = config.suite
        key = digest(plain(suite))
        if key in seen or (config.dry_run and suite.path is None and suite.source is not None):
            continue
        seen.add(key)
        try:
            load_prompts(config)
        except LabError as e:
            refused.append(str(e))
    if refused:
        many = f"{len(refused)} suite(s) of the sweep cannot be read; nothing was started.\n"
        raise LabError(many + "\n".join(refused))


@contextmanager
def _hydras_own(overrides: list[str]) -> Iterator[None]:
    """Takes away the files that Hydra writes, and turns the one of its errors that is no HydraException into ours."""
    from eagle_lab.cli.hydra_files import Tidy
    from eagle_lab.config.errors import LabError

    try:
        yield
    except ValueError as e:
        if "Config group override" not in str(e):  # said of suite=3, which is read as a number
            raise
        numbers = [o for o in overrides if "." not in o.partition("=")[0]]
        raise LabError(f"config: {', '.join(numbers)}: a group takes the name of an option, as in suite=smoke.") from e
    finally:
        Tidy.tidy()


def _only_shows(verb: str, argv: list[str]) -> bool:
    """Whether the flags ask for a print instead of a run; LabError for flags that exclude each other or the verb."""
    from hydra._internal.utils import get_args_parser

    from eagle_lab.config.errors import LabError

    args = get_args_parser().parse_args(argv)
    given = [f"--{k}" for k in ("run", "multirun", "cfg", "info") if getattr(args, k)]
    if len(given) > 1:
        raise LabError(f"{' and '.join(given)} exclude each other. Keep one of them.")
    if args.multirun and verb in LOOKING:
        raise LabError(f"{verb} looks at all that there is, once: drop --multirun.")
    if args.resolve and not (args.cfg or args.help):
        raise LabError("--resolve belongs to --cfg job (or --help) and only there.")
    return bool(args.cfg or args.info or args.shell_completion)


def _check_machine(verb: str, config: Config) -> None:
    """LabError, before anything is made, when this machine cannot run the server that the verb is going to start."""
    from eagle_lab.config.schema import Engine, SpecKind
    from eagle_lab.serve.process import check_machine

    asks = verb == "doctor" and config.spec.kind is SpecKind.chain and config.doctor.engine is Engine.sglang
    if (verb in SERVING and not config.dry_run) or (verb == "serve" and config.stay) or asks:
        check_machine(config.server)
    if not config.dry_run and verb not in LOOKING:
        Path(config.paths.cache).mkdir(parents=True, exist_ok=True)  # OSError now, not once per point


def body(verb: str) -> Callable[..., int]:
    """The verb's `run(config, out) -> exit code`; its module may import torch when called."""
    return importlib.import_module(f"eagle_lab.cli.{verb.replace('-', '_')}").run


def _sweep(verb: str, directory: Path, points: list[Point]) -> int:
    from eagle_lab.sweep.execute import execute
    from eagle_lab.sweep.jobs import MEASURING

    failed = execute(directory, points)
    if verb in MEASURING and not points[0].config.dry_run:
        from eagle_lab.cli.report import write

        write(directory)
    return 1 if failed else 0


def _job(directories: list[Path]) -> int:
    from eagle_lab.serve.process import sharing
    from eagle_lab.sweep.child import run_job

    return run_job(directories, body, sharing)
