"""Is the advice right? Clusters from a seed, what is advised for each, and real runs of every candidate."""
