"""Figures as they are handed out."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        """Writes the drawing to a file, over what is there. Raises ValueError for names of other kinds of files than .svg."""
        ending = os.path.splitext(os.fspath(path))[1].lower()
        if ending not in ("", ".svg"):
            raise ValueError(f"figures are SVG: a name that ends in .svg, not in {ending}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._svg)

    def _repr_svg_(self) -> str:
        return self._svg

    def __repr__(self) -> str:
        return f"<joulecast.Figure: {len(self._svg)} characters of SVG>"
