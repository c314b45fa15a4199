"""The table as CSV and as JSON: fixed columns, missing is empty or null."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from sweep.report.text import visible


def to_csv(frame: pd.DataFrame) -> str:
    """Return the table as CSV with a header; missing values are empty, lines end in LF.

    Control characters and terminal escapes are made visible, as files like this are printed.
    """
    shown = frame.copy()
    for name in map(str, frame.columns):
        if frame[name].dtype == "string":
            shown[name] = frame[name].map(visible, na_action="ignore")
    return str(shown.to_csv(index=False, lineterminator="\n"))


def to_json(frame: pd.DataFrame) -> str:
    """Return the table as a JSON list of objects; missing values are null, flags are a list."""
    rows: list[dict[str, Any]] = [
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]
    for row in rows:
        row["flags"] = row["flags"].split()
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"
