"""Numbers in cells of tables."""


def is_number(value: str) -> bool:
    """Whether a text is a number as people write one."""
    try:
        float(value)
    except ValueError:
        return False
    return True
