"""Curves of training as a picture: a plot for each metric, over the rounds, in one file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 28, 24
_COLUMNS = 2


def picture_of(metrics: Sequence[Mapping[str, float]]) -> str:
    """An SVG with a plot for each metric. Rounds in which one wasn't measured, or wasn't finite,
    aren't in its curve."""
    names = list(dict.fromkeys(name for each in metrics for name in each))
    rows = math.ceil(len(names) / _COLUMNS)
    plots = [
        _plot(name, metrics, at % _COLUMNS * _WIDTH, at // _COLUMNS * _HEIGHT)
        for at, name in enumerate(names)
    ]
    width, height = _COLUMNS * _WIDTH, max(rows, 1) * _HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *plots,
            "</svg>\n",
        ]
    )


def _plot(name: str, metrics: Sequence[Mapping[str, float]], left: int, top: int) -> str:
    """A metric's curve, with the least and the greatest number beside it."""
    found = [
        (number, each[name])
        for number, each in enumerate(metrics, 1)
        if name in each and math.isfinite(each[name])
    ]
    low = min((value for _, value in found), default=0.0)
    high = max((value for _, value in found), default=0.0)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    rounds = max(len(metrics) - 1, 1)

    def place(number: int, value: float) -> str:
        # Halves, so that nothing overflows.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return f"{_LEFT + (number - 1) / rounds * width:.1f},{_TOP + (1 - share) * height:.1f}"

    points = " ".join(place(number, value) for number, value in found)
    dots = "".join(
        '<circle cx="{}" cy="{}" r="2" fill="#1f77b4"/>'.format(*place(number, value).split(","))
        for number, value in found
    )
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    return (
        f'<g transform="translate({left},{top})">'
        f'<text x="{_LEFT}" y="{_TOP - 10}" font-weight="bold">{escape(name)}</text>'
        f'<path d="M{_LEFT},{_TOP}V{bottom}H{right}" fill="none" stroke="#888"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 4}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 4}" y="{bottom}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{_LEFT}" y="{bottom + 14}">1</text>'
        f'<text x="{right}" y="{bottom + 14}" text-anchor="end">round {len(metrics)}</text>'
        f'<polyline points="{points}" fill="none" stroke="#1f77b4"/>{dots}</g>'
    )
