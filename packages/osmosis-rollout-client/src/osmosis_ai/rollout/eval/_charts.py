"""Bar charts as inline SVG."""

from collections.abc import Mapping, Sequence
from html import escape

from osmosis_ai.rollout.eval._histogram import Bar
from osmosis_ai.rollout.eval._statistics import Interval

_WIDTH, _BAR_HEIGHT, _LABEL_WIDTH = 640, 22, 130
_SPACE = _WIDTH - _LABEL_WIDTH - 60


def bar_chart(bars: Sequence[Bar]) -> str:
    """Return the chart of a histogram, or a word where it has no bars."""
    if not bars:
        return '<p class="quiet">none</p>'
    highest = max(bar.count for bar in bars)
    shapes = [
        _bar(place, bar.label, bar.count / highest, f"{bar.count:,}")
        for place, bar in enumerate(bars)
    ]
    return _svg(shapes)


def share_chart(shares: Mapping[str, tuple[float, Interval | None]]) -> str:
    """Return the chart of numbers from 0 to 1 by their names, with whiskers for intervals."""
    shapes: list[str] = []
    for place, (name, (share, ends)) in enumerate(shares.items()):
        low, high = (_LABEL_WIDTH + _SPACE * end for end in ends or (share, share))
        y = place * _BAR_HEIGHT + _BAR_HEIGHT / 2
        whisker = f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
        shapes.append(_bar(place, name, share, f"{share:.3f}", at_end=True) + whisker)
    return _svg(shapes)


def _bar(place: int, label: str, share: float, value: str, *, at_end: bool = False) -> str:
    """Return one bar; its value stands behind it, or at the end of the room for bars."""
    y, width = place * _BAR_HEIGHT, _SPACE * share
    value_x = _LABEL_WIDTH + 6 + (_SPACE if at_end else width)
    return (
        f'<text x="{_LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{_LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{_BAR_HEIGHT - 6}"/>'
        f'<text x="{value_x:.1f}" y="{y + 15}">{escape(value)}</text>'
    )


def _svg(bars: Sequence[str]) -> str:
    height = len(bars) * _BAR_HEIGHT
    return (
        f'<svg role="img" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">'
        f"{''.join(bars)}</svg>"
    )
