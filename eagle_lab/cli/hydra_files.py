"""What Hydra itself writes and we do not want: plan.json says what a sweep is, multirun.yaml only what was launched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig


class Tidy(Callback):
    """Knows the directory of a launch, also of one that Hydra refuses before any point is composed (conf/base.yaml).

    Hydra writes multirun.yaml before it looks at the points, so a refused or dry launch would replace the finished
    sweep's, or leave a directory that looks like one.
    """

    sweeps: ClassVar[list[Path]] = []

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self.sweeps.append(Path(config.hydra.sweep.dir))

    @classmethod
    def tidy(cls) -> None:
        for sweep in cls.sweeps:
            (sweep / "multirun.yaml").unlink(missing_ok=True)
            remove_if_empty(sweep)


def remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()
