"""The parts of `make bench-local`."""
