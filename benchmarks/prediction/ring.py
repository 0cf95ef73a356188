from collections.abc import Iterator


def rows(directory, say) -> Iterator:
    return iter(())
