"""Who waits for whom, and why: a verdict on a run, from its traces alone."""
