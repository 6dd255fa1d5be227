"""Numbers in cells of tables."""


def is_number(value: str) -> bool:
    """Whether a text parses as a float."""
    try:
        float(value)
    except ValueError:
        return False
    return True
