"""Which strategy to choose: what to probe, what the probes say, and why. Pure: no I/O, no clock, no torch."""
