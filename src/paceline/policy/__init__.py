"""Every decision of a run: who may start, on which batches, what makes an update, what is dropped."""
