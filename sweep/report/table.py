"""The table of a sweep, from its record and from the files that were fetched."""

from __future__ import annotations

import pandas as pd

from sweep.analysis.frame import make_frame
from sweep.analysis.measurement import Count
from sweep.model.record import SweepRecord
from sweep.report.chunks import read_gaps
from sweep.report.cycles import read_cycles
from sweep.report.scrapes import read_scrapes
from sweep.report.telemetry import read_clocks
from sweep.report.traces import read_traces


def read_frame(record: SweepRecord, count: Count) -> pd.DataFrame:
    """Return the table of a sweep with all that its fetched files say."""
    return make_frame(
        record,
        count,
        read_gaps(record),
        read_cycles(record),
        read_clocks(record),
        traces=read_traces(record),
        scrapes=read_scrapes(record),
    )
