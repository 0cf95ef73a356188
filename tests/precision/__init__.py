"""Types of numbers, loss scale and masters: pure parts, and whole ranks in threads."""
