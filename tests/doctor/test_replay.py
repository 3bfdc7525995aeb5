from __future__ import annotations

from eagle_lab.doctor.replay import Replayed


def test_histograms_of_different_length_can_be_equal() -> None:
    assert Replayed({}, [3, 1], [3, 1, 0, 0]).equal
    assert Replayed({}, [3, 1, 0, 0, 0], [3, 1]).equal
    assert not Replayed({}, [3, 1, 1], [3, 1]).equal
