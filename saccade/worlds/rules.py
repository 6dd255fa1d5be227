"""Rules of the JSON of a world: what breaks one, and what was expected."""


class RuleError(ValueError):
    """A value breaks a rule."""

    def __init__(self, what: str, expected: str, next_step: str = "") -> None:
        super().__init__(f"{what}, expected {expected}")
        self.what, self.expected, self.next_step = what, expected, next_step


def shown(value: object) -> str:
    """Return a value as it is shown in a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
