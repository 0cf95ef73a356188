"""Running a recorded run again, in its recorded order: see docs/replay.md. Imports no torch."""
