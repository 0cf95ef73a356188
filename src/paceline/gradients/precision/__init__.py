"""In which types numbers are computed, accumulated, sent and kept, and the loss scale that fp16 needs."""
