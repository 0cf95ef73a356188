"""What all benchmarks share: processes that take turns, arithmetic, results, the table."""
