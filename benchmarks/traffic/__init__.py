"""The parts of `make bench-traffic`."""
