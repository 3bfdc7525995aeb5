"""eagle-lab serve: the command that serves the head as it was measured; with stay=true, the server itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, SpecKind

if TYPE_CHECKING:
    from eagle_lab.serve.launch import Launch

DEFAULT_PORT = 30000
"""SGLang's own; printed when none is given."""
WATCH_S = 5.0


def run(config: Config, out: Path) -> int:
    """Prints the shell line (alone on stdout but for one comment); stay: serves until Ctrl-C, log in out/server.log."""
    from eagle_lab.cli.stages import head_stage, locate_target
    from eagle_lab.serve.launch import Launch, command_line
    from eagle_lab.serve.process import free_port

    if config.head is not None and config.spec.kind is SpecKind.none:
        raise LabError(f"serve head={config.head} with spec=none would serve no head. Add spec=chain_5, or drop head.")
    target = locate_target(config)
    head = None if config.spec.kind is SpecKind.none else head_stage(config).path
    port = config.server.port or (free_port(config.server.host) if config.stay else DEFAULT_PORT)
    launch = Launch(target.path, replace(config.server, port=port), config.spec, head, target_digest=target.digest)
    print("# as measured; without --disable-radix-cache requests share the prefixes of their prompts")
    print(command_line(launch, port), flush=True)
    return _stay(launch, out / "server.log") if config.stay else 0


def _stay(launch: Launch, log: Path) -> int:
    from eagle_lab.serve.process import serving

    with serving(launch, log) as client:
        print(f"{client.base_url} serves; log: {log}; Ctrl-C stops it", flush=True)
        try:
            while True:
                # a ServingFault as soon as it is gone
                client.info()
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return 0
