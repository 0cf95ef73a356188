"""``python -m paceline.cli``: the ``paceline`` command where no entry point is installed."""

from paceline.cli import main

main()
