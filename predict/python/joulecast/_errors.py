"""Exceptions of the package."""


class UnknownName(KeyError):
    """A network, GPU or framework profile that is not built in. The message names the nearest that are."""

    def __str__(self) -> str:
        # A KeyError shows its key as Python would write it; this is a sentence.
        return str(self.args[0]) if self.args else ""
