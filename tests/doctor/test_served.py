"""What a fault costs on the real CPU server, and that doctor names it: the rows of docs/results/doctor_served.jsonl.

One of each kind here, all of them among the long tests; `python -m tests.doctor.prove` writes the rows anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.corpus import FAULTS, SERVER_FAULTS, Fault, ServerFault
from tests.doctor.prove import RIGHT, TABLE, Good, good, head_fault, server_fault

pytestmark = pytest.mark.server
ROWS = {row["fault"]: row for row in map(json.loads, TABLE.read_text(encoding="utf-8").splitlines())}
OFTEN = ("fc is missing", "EAGLE for EAGLE3")
NOISE = ("two layers",)
"""Its second layer is memory that nothing was loaded into: 1.00 one day, 2.59 another."""
BOTH: tuple[Fault | ServerFault, ...] = (*FAULTS, *SERVER_FAULTS)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return good(tmp_path_factory.mktemp("served"))


def proven(right: Good, fault: Fault | ServerFault, folder: Path) -> dict[str, Any]:
    return head_fault(right, fault, folder) if isinstance(fault, Fault) else server_fault(right, fault, folder)


@pytest.mark.parametrize("fault", [f for f in BOTH if f.name in OFTEN], ids=lambda f: f.name)
def test_one_of_each_kind(right: Good, tmp_path: Path, fault: Fault | ServerFault) -> None:
    row = proven(right, fault, tmp_path)
    assert row["named"] == fault.check
    assert row["accept_length"] < 1.1 < 2.5 < ROWS[RIGHT]["accept_length"]


@pytest.mark.long
@pytest.mark.parametrize("fault", [f for f in BOTH if f.name not in OFTEN], ids=lambda f: f.name)
def test_all(right: Good, tmp_path: Path, fault: Fault | ServerFault) -> None:
    row, wanted = proven(right, fault, tmp_path), ROWS[fault.name]["accept_length"]
    assert row["named"] == fault.check
    assert (row["accept_length"] is None) == (wanted is None)
    if wanted and fault.name not in NOISE:
        # what costs everything does so by whatever lies in memory that nothing was loaded into
        assert row["accept_length"] == pytest.approx(wanted, abs=0.05)


def test_every_fault_has_its_row() -> None:
    assert list(ROWS) == [RIGHT, *(f.name for f in BOTH)]
    assert [ROWS[f.name]["named"] for f in BOTH] == [f.check for f in BOTH]
