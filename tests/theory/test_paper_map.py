import re
from pathlib import Path

import pytest

from seedlab.theory import bulk, groups

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "paper_map.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| paper |")]
REFERENCES = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))


def cells(row):
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def test_no_row_is_empty():
    assert len(ROWS) > 35
    for row in ROWS:
        assert len(cells(row)) == 3, row
        paper, implemented, checked = cells(row)
        assert paper and "::" in implemented, row
        assert "::test_" in checked, row


@pytest.mark.parametrize(("file", "name"), REFERENCES, ids=["::".join(r) for r in REFERENCES])
def test_every_reference_exists(file, name):
    assert re.search(rf"^\s*(async )?(def|class) {name}\b", (ROOT / file).read_text(), re.M), f"{file} has no {name}"


def test_every_claim_is_on_the_page():
    names = {c.name for c in bulk.claims(0, 5, 4) + groups.claims(0, 5)} | {
        "transformer-opd-gradient", "transformer-tied-group", "transformer-staleness", "transformer-synchronised"
    }
    assert names == set(re.findall(r'"([a-z0-9-]+)"', TEXT))
