"""Launch -> the exact command line of an SGLang server: pure functions, complete, with no room for a free argument.

Every argument that could change a number is stated, since SGLang's defaults depend on the others (the attention
backend on topk, the number of running requests on the algorithm). No argument is passed through from a config, so none
can repeat --speculative-algorithm: argparse would take the last one.
Arguments as of sglang 0.5.15.post1 (GPU) and 0.5.20 (CPU): srt/server_args.py, srt/arg_groups/fields/.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eagle_lab.config.errors import LabError
from eagle_lab.config.model_config import read_target
from eagle_lab.config.schema import Server, ServerKind, Spec, SpecKind
from eagle_lab.serve.pairing import algorithm, check_pair

__all__ = ["Launch", "algorithm", "argv", "check", "command_line", "environment", "import_environment"]

CPU_OPERATORS = Path(__file__).resolve().parent / "cpu"
"""Goes on PYTHONPATH of a CPU server."""

SCRUBBED_PREFIXES = ("SGLANG_SIMULATE_ACC_",)
"""They make SGLang report an acceptance that it did not see."""
SCRUBBED = ("TRITON_INTERPRET", "PYTHONDONTWRITEBYTECODE")
"""The first makes Triton kernels run as slow Python; a test suite sets it for itself. With the second, which images
set, each process compiles all that it imports: a server on an H200's host was up after 51 to 74 s, without after 26 to
36."""

# How long a thread of libgomp (in PyTorch's wheels) polls for work before it sleeps. Left alone it polls for ever while
# there is a core per thread, so one busy process beside the server stalls every parallel region for a time slice. ms
# per decoding step of a 135M model, 2 cores, 1 / 16 requests, alone and beside two busy processes:
#   default   35 /  41   1003 / 1381
#   passive   43 /  45    103 /  122   (OMP_WAIT_POLICY: sleeps at once)
#   2000      33 /  43    101 /   86
#   20000     31 /  42    180 /  193
#   1 thread  52 /  68     77 /  103
SPIN_COUNT = "2000"


@dataclass(frozen=True)
class Launch:
    """One server: a local target directory, how it is served, and the head with its speculation numbers."""

    target: Path
    server: Server
    spec: Spec
    head: Path | None
    hidden_states: bool = False
    """Let requests ask for hidden states."""
    target_digest: str | None = None
    """Compared with the one beside the head, where both are known."""
    alone: bool = False
    """No other server of ours on the GPU meanwhile: this one is timed."""
    seed: int = 0
    """Of the server's random numbers: SGLang heeds a request's own seed only with --enable-deterministic-inference."""


def check(launch: Launch) -> None:
    """Raises LabError for what SGLang would rewrite, crash on, or serve without any acceptance."""
    server = launch.server
    positions = read_target(launch.target).get("max_position_embeddings")
    if positions is not None and positions < server.context_length:
        raise LabError(
            f"server.context_length={server.context_length} is above the {positions} positions of {launch.target}. "
            f"Set server.context_length={positions} or less."
        )
    if (launch.spec.kind is SpecKind.none) != (launch.head is None):
        raise LabError(
            f"spec={launch.spec.kind.value} with head={launch.head}: speculation needs a head, and plain decoding "
            "takes none. Give head=/exported/head, or use spec=none."
        )
    if launch.head is not None:
        check_pair(launch.target, launch.head, server.context_length, launch.target_digest)


def argv(launch: Launch, port: int) -> list[str]:
    """The server's command, ready for execve. Raises LabError as `check`."""
    server = launch.server
    if server.kind is ServerKind.url:
        raise LabError(f"server.url={server.url}: that server runs already, there is no command to start it.")
    check(launch)
    options: dict[str, object] = {
        "--model-path": launch.target,
        "--host": server.host,
        "--port": port,
        "--tp-size": server.tp,
        "--dtype": server.dtype,
        "--context-length": server.context_length,
        "--max-running-requests": server.max_running_requests,
        "--mem-fraction-static": server.mem_fraction,
        "--max-total-tokens": server.max_total_tokens,
        "--quantization": server.quantization,
        "--page-size": 1,
        "--sampling-backend": "pytorch",
        "--grammar-backend": "none",
        # sampled text repeats for the same requests in the same order
        "--random-seed": launch.seed,
        **_device(server),
        **_speculation(launch),
    }
    flags = ["--disable-radix-cache", "--skip-server-warmup"]
    if server.kind is ServerKind.cpu:
        # an idle scheduler would poll on a core of its own
        flags.append("--sleep-on-idle")
    if launch.hidden_states:
        flags.append("--enable-return-hidden-states")
    stated = {flag: str(value) for flag, value in options.items() if value is not None}
    for flag, value in stated.items():
        # argparse would take it for a flag of its own
        if value.startswith("-"):
            raise LabError(f"{flag} {value}: a value cannot start with a dash. Correct it in the server config.")
    return [sys.executable, "-m", "sglang.launch_server", *(w for pair in stated.items() for w in pair), *flags]


def _device(server: Server) -> dict[str, object]:
    if server.kind is ServerKind.cpu:
        return {
            "--device": "cpu",
            # a line after every round, as a sign of life. On a GPU, where a round takes 1 to 5 ms, it would cost speed:
            # one every 40, SGLang's own, is enough there
            "--decode-log-interval": 1,
            # the pair, not --attention-backend: that one is rewritten to torch_native where there is no AMX
            "--prefill-attention-backend": server.attention_backend,
            "--decode-attention-backend": server.attention_backend,
            "--cuda-graph-backend-prefill": "disabled",
            "--cuda-graph-backend-decode": "disabled",
        }
    return {
        "--attention-backend": server.attention_backend,
        "--cuda-graph-max-bs-decode": server.max_running_requests,
        # its capture takes 80 s per start, and prompts are no part of what is measured
        "--cuda-graph-backend-prefill": "disabled",
    }


def _speculation(launch: Launch) -> dict[str, object]:
    if launch.head is None:
        return {}
    spec = launch.spec
    return {
        "--speculative-algorithm": algorithm(launch.head),
        "--speculative-draft-model-path": launch.head,
        "--speculative-num-steps": spec.num_steps,
        "--speculative-eagle-topk": spec.eagle_topk,
        "--speculative-num-draft-tokens": spec.num_draft_tokens,
        # the head would inherit the target's otherwise
        "--speculative-draft-model-quantization": "unquant" if launch.server.quantization else None,
    }


def environment(launch: Launch, base: Mapping[str, str]) -> dict[str, str]:
    """`base` without what fakes acceptance, with what the server needs."""
    kept = {k: v for k, v in base.items() if not k.startswith(SCRUBBED_PREFIXES) and k not in SCRUBBED}
    return kept | _settings(launch, base)


def import_environment(base: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `import sglang` works and stays on the CPU, whatever machine this is."""
    kept = {k: v for k, v in base.items() if k not in SCRUBBED}
    return kept | _cpu_settings(base, os.cpu_count() or 1)


def _settings(launch: Launch, base: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    if launch.target.is_dir():
        settings |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if launch.server.kind is ServerKind.cpu:
        settings |= _cpu_settings(base, launch.server.num_threads or os.cpu_count() or 1)
    return settings


def _cpu_settings(base: Mapping[str, str], threads: int) -> dict[str, str]:
    path = [str(CPU_OPERATORS), *filter(None, [base.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "SGLANG_USE_CPU_ENGINE": "1",
        # a GPU that is also there would be probed
        "CUDA_VISIBLE_DEVICES": "",
        # the few compiled helpers would need a C compiler and 15 s at start
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": SPIN_COUNT,
    }


def command_line(launch: Launch, port: int) -> str:
    """The shell line that starts exactly this server elsewhere, scrubbing included."""
    settings = _settings(launch, {})
    unset = [f"-u {name}" for name in _simulations()]
    words = ["env", *unset, *(f"{k}={shlex.quote(v)}" for k, v in settings.items())]
    return " ".join([*words, "python", *map(shlex.quote, argv(launch, port)[1:])])


def _simulations() -> list[str]:
    return [f"{SCRUBBED_PREFIXES[0]}{name}" for name in ("LEN", "METHOD", "TOKEN_MODE")]
