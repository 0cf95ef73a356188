"""Virtual-time training: real gradients, a simulated clock, any number of workers in one process.

``paceline run --virtual cluster.toml train.py``. Each worker is a thread that runs the script; one
thread at a time has the baton, and gives it away only where a worker waits (for the server, or for
its emulated step to be over). Policy, server and worker are those of a real run.
"""
