from __future__ import annotations

from eagle_lab.config.errors import LabError
from eagle_lab.doctor.checks import Verdict, run_checks
from eagle_lab.doctor.replay import Replayed


def test_a_failed_check_does_not_hide_the_later_ones() -> None:
    def fails() -> str:
        raise LabError("fc is missing. Export again.")

    found = run_checks({"tensors": fails, "served": lambda: "EAGLE3"})
    assert found == [Verdict("tensors", False, "fc is missing. Export again."), Verdict("served", True, "EAGLE3")]


def test_histograms_of_different_length_can_be_equal() -> None:
    assert Replayed({}, [3, 1], [3, 1, 0, 0]).equal
    assert Replayed({}, [3, 1, 0, 0, 0], [3, 1]).equal
    assert not Replayed({}, [3, 1, 1], [3, 1]).equal
