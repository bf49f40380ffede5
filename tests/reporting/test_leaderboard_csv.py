"""The leaderboard as comma-separated values: the figures of the boards."""

import csv
import io

from macer.reporting import leaderboard_csv
from macer.reporting.leaderboard import boards
from macer.reporting.tables import RADII

# law


def test_csv_has_the_figures_of_the_boards():
    lines = list(csv.DictReader(io.StringIO(leaderboard_csv.csv(boards()))))
    rows = [(one, row) for one in boards() for row in one.rows]
    assert len(lines) == len(rows)
    for line, (one, row) in zip(lines, rows, strict=True):
        assert None not in line and None not in line.values()
        assert (line["method"], int(line["rank"])) == (row.method, row.rank)
        assert (float(line["sigma"]), line["images"]) == (one.sigma, one.images)
        assert float(line["acr"]) == row.acr
        assert [float(line[f"certified_accuracy_{r:.2f}"]) for r in RADII] == list(row.accuracies)
        for column, told in (("to_reference", row.to_reference), ("to_best", row.to_best)):
            assert line[column] == ("" if told is None else str(told.difference))
        assert line["runner_up_acr"] == (str(row.runner_up.acr) if row.runner_up else "")
        assert line["figures_only"] == str(row.figures_only).lower()
