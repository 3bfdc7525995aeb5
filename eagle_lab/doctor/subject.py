"""What a doctor looks at: any of a head, a target, a dataset, a server, with the config that goes with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eagle_lab.config.aux_layers import captured_by_sglang, default_layers
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, Engine
from eagle_lab.data.dataset import Dataset
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.weights import TargetWeights

if TYPE_CHECKING:
    from eagle_lab.doctor.served import Served
    from eagle_lab.doctor.truth import Truth


@dataclass(frozen=True)
class Subject:
    config: Config
    head: HeadDirectory | None = None
    target: LocatedTarget | None = None
    dataset: Dataset | None = None
    served: Served | None = None
    unserved: str | None = None
    """Why no server answers as it was asked to: a verdict of its own."""
    missing: dict[str, str] = field(default_factory=dict)
    """Part -> why it is not there, where more is to be said than that it was not given."""

    @property
    def engine(self) -> Engine:
        """That is to load the head; `head` is to be read for the same one."""
        return self.config.doctor.engine

    @property
    def given(self) -> HeadDirectory:
        """The head, for a check that needs one."""
        assert self.head is not None
        return self.head

    @property
    def its_target(self) -> LocatedTarget:
        assert self.target is not None
        return self.target

    @property
    def tokens(self) -> Dataset:
        assert self.dataset is not None
        return self.dataset

    @property
    def server(self) -> Served:
        if self.served is None:
            raise LabError(self.unserved or "no server was asked")
        return self.served

    @cached_property
    def target_weights(self) -> TargetWeights:
        return TargetWeights(self.its_target)

    @cached_property
    def aux_layers(self) -> list[int]:
        """Canonical: those of the training; of a head that does not say, those that SGLang captures for it."""
        n, ids = self.its_target.num_hidden_layers, self.given.layer_ids
        guess = captured_by_sglang(ids, self.its_target.architecture) if ids else default_layers(n)
        return list(self.given.export.get("aux_layers") or guess)

    @cached_property
    def truth(self) -> Truth:
        from eagle_lab.doctor.truth import Truth

        return Truth(self.config, self.its_target, self.given, self.aux_layers, self.server)

    def field(self, name: str) -> Any:
        """Of the head's config.json."""
        return self.given.config.get(name)
