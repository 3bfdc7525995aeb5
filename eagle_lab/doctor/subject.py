"""What a doctor looks at: any of a head, a target, a dataset, with the config that goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eagle_lab.config.schema import Config
from eagle_lab.data.dataset import Dataset
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.weights import TargetWeights


@dataclass(frozen=True)
class Subject:
    config: Config
    head: HeadDirectory | None = None
    target: LocatedTarget | None = None
    dataset: Dataset | None = None

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

    @cached_property
    def target_weights(self) -> TargetWeights:
        return TargetWeights(self.its_target)

    def field(self, name: str) -> Any:
        """Of the head's config.json."""
        return self.given.config.get(name)
