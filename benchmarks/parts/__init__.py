"""One module per group of rows: each has ``measure(bench)``, which yields rows."""
