"""Pictures in pixels for viewers that run nothing: rectangles, hatches, lines and words.

A plotting library draws more, but takes longer to load than the explorer takes to count.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

__all__ = ["Picture", "cividis", "reads_on"]

SCALE = 2
"""Pixels of the picture per pixel of its layout: it stays sharp on fine screens."""

INK, SOFT, EDGE = "#18202B", "#465263", "#7C8796"

CIVIDIS = (
    (0, 34, 78),
    (18, 53, 112),
    (59, 73, 108),
    (87, 93, 109),
    (112, 113, 115),
    (138, 134, 120),
    (165, 156, 116),
    (195, 180, 105),
    (225, 204, 85),
    (254, 232, 56),
)


def cividis(share: float) -> tuple[int, int, int]:
    """Colour of a share between 0 and 1, apart for the colour-blind too."""
    at = min(max(share, 0.0), 0.9999) * (len(CIVIDIS) - 1)
    k, part = int(at), at % 1
    mixed = (round(a + (b - a) * part) for a, b in zip(CIVIDIS[k], CIVIDIS[k + 1], strict=True))
    red, green, blue = mixed
    return red, green, blue


def reads_on(share: float) -> str:
    """Colour of words on a ground of `cividis`."""
    return "#10161D" if share > 0.52 else "#FFFFFF"


@lru_cache(maxsize=32)
def _font(size: float, bold: bool) -> Any:
    """A font with the letters of most names: matplotlib's where it is, else the library's own."""
    found = importlib.util.find_spec("matplotlib")
    for folder in (found.submodule_search_locations or ()) if found else ():
        name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
        path = Path(folder, "mpl-data", "fonts", "ttf", name)
        if path.exists():
            return ImageFont.truetype(str(path), round(size * SCALE))
    return ImageFont.load_default(round(size * SCALE))


class Picture:
    """A white picture of some size, in whose pixels all places are given."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._image = Image.new("RGB", (width * SCALE, height * SCALE), "white")
        self._draw = ImageDraw.Draw(self._image)
        self._hatches: dict[str, Image.Image] = {}

    def box(self, x: float, y: float, width: float, height: float, fill: Any) -> None:
        """A filled rectangle."""
        if width > 0 and height > 0:
            self._draw.rectangle(self._corners(x, y, width, height), fill=fill)

    def frame(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """The outline of a rectangle."""
        if width > 0 and height > 0:
            self._draw.rectangle(self._corners(x, y, width, height), outline=colour)

    def hatched(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A rectangle filled with slanted lines."""
        left, top, right, foot = self._corners(x, y, width, height)
        if right > left and foot > top:
            box = (left, top, right + 1, foot + 1)
            self._image.paste(self._hatch(colour).crop(box), box)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1) -> None:
        """A line through points."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        self._draw.line(scaled, fill=colour, width=max(1, round(width * SCALE)), joint="curve")

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        """A filled disc."""
        ends = [(x - radius) * SCALE, (y - radius) * SCALE]
        ends += [(x + radius) * SCALE, (y + radius) * SCALE]
        self._draw.ellipse(ends, fill=colour)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "ls",
        size: float = 11,
        colour: str = SOFT,
        bold: bool = False,
    ) -> None:
        """Words; `anchor` is as of Pillow: left, middle or right, then s(baseline) or m(iddle)."""
        place = (x * SCALE, y * SCALE)
        self._draw.text(place, text, font=_font(size, bold), fill=colour, anchor=anchor)

    def upwards(self, x: float, y: float, text: str, *, size: float = 11) -> None:
        """Words from the foot to the top, about their middle."""
        font = _font(size, False)
        left, top, right, foot = font.getbbox(text)
        words = Image.new("L", (max(1, int(right - left)), max(1, int(foot - top))))
        ImageDraw.Draw(words).text((-left, -top), text, font=font, fill=255)
        turned = words.transpose(Image.Transpose.ROTATE_90)
        corner = (round(x * SCALE - turned.width / 2), round(y * SCALE - turned.height / 2))
        self._image.paste(
            SOFT, (*corner, corner[0] + turned.width, corner[1] + turned.height), turned
        )

    def length(self, text: str, size: float = 11, *, bold: bool = False) -> float:
        """How long words are."""
        return float(_font(size, bold).getlength(text)) / SCALE

    def png(self) -> bytes:
        """The picture as a PNG."""
        buffer = io.BytesIO()
        few = self._image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(buffer, format="PNG", compress_level=6)
        return buffer.getvalue()

    @staticmethod
    def _corners(x: float, y: float, width: float, height: float) -> tuple[int, int, int, int]:
        left, top = round(x * SCALE), round(y * SCALE)
        return left, top, round((x + width) * SCALE) - 1, round((y + height) * SCALE) - 1

    def _hatch(self, colour: str) -> Image.Image:
        if colour not in self._hatches:
            made = Image.new("RGB", self._image.size, "white")
            pen = ImageDraw.Draw(made)
            for at in range(-made.height, made.width, 6 * SCALE):
                ends = [(at, made.height), (at + made.height, 0)]
                pen.line(ends, fill=colour, width=2 * SCALE)
            self._hatches[colour] = made
        return self._hatches[colour]
