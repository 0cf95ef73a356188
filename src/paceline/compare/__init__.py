"""Figures of finished or running runs, computed from their traces alone, and the table of them."""
