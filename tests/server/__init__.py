"""The server process, tested through a worker reduced to its protocol."""
