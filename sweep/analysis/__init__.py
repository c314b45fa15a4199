"""From records to a table, intervals and a verdict: functions of values."""
