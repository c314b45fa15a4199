"""Running a sweep: its process, its loop, its lanes."""
