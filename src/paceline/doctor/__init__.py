"""What this machine is like, and what of it slows training down. Reads files below roots that are passed in."""
