"""Figures: one file each, from the table to a matplotlib Figure."""
