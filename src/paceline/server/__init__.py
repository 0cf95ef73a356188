"""The run's server process: who is a member, who must stop, and (server plane) the parameters."""
