"""Figures as they are handed out."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Union


class Figure:
    """A figure as SVG, which notebooks show."""

    __slots__ = ("_svg",)

    def __init__(self, svg: str) -> None:
        self._svg = svg

    @property
    def svg(self) -> str:
        """The drawing."""
        return self._svg

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the drawing to a file, over what is there."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._svg)

    def _repr_svg_(self) -> str:
        return self._svg

    def __repr__(self) -> str:
        return f"<joulecast.Figure: {len(self._svg)} characters of SVG>"
