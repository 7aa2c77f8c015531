"""Results for people: a table of text, and one of HTML."""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence

# The longest value that is shown whole, on a terminal and in a notebook.
_LONGEST = 48
_LONGEST_HTML = 240
# Where there is no terminal, such as in a notebook.
_COLUMNS = 120

# Types whose values stand on the right.
_NUMBERS = ("Int", "UInt", "Float", "Decimal")

Cells = Sequence[Sequence[str | None]]


def as_text(names: Sequence[str], types: Sequence[str], rows: Cells, footer: str) -> str:
    """A table that fits a terminal, with types below the names."""
    shown_types = [_type(kind) for kind in types]
    lines = [[_cell(value) for value in row] for row in rows]
    widths = [
        max([len(name), len(kind), *(len(line[at]) for line in lines)])
        for at, (name, kind) in enumerate(zip(names, shown_types))
    ]
    right = [kind.startswith(_NUMBERS) for kind in types]
    names = list(names)
    left, gap = _fitting(widths, shutil.get_terminal_size((_COLUMNS, 24)).columns)
    if gap:
        # Some in the middle have no room.
        for row in (names, shown_types, *lines):
            row[left : left + gap] = ["…"]
        widths[left : left + gap] = [1]
        right[left : left + gap] = [False]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right)
        ]
        return "│ " + " │ ".join(parts) + " │"

    def rule(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end

    if not names:
        return footer
    body = [rule("┌", "┬", "┐"), line(names), line(shown_types), rule("├", "┼", "┤")]
    body += [line(values) for values in lines]
    if gap:
        footer += f", {gap} of {len(types)} columns are not shown"
    body += [rule("└", "┴", "┘"), footer]
    return "\n".join(body)


def _fitting(widths: Sequence[int], room: int) -> tuple[int, int]:
    """How many columns stand on the left, and how many behind these have no room. The first and the last one always do."""
    shown = sum(width + 3 for width in widths) + 1
    if shown <= room:
        return len(widths), 0
    right = len(widths) // 2
    left = len(widths) - right
    # A column of its own says that some are missing.
    while shown + 4 > room and left + right > 2:
        if left > right:
            left -= 1
            shown -= widths[left] + 3
        else:
            shown -= widths[-right] + 3
            right -= 1
    return left, len(widths) - left - right


def as_html(names: Sequence[str], types: Sequence[str], rows: Cells, footer: str) -> str:
    """A table for notebooks."""
    aligned = [
        ' style="text-align:right"' if kind.startswith(_NUMBERS) else ' style="text-align:left"' for kind in types
    ]
    if not names:
        return f"<small>{html.escape(footer)}</small>"
    head = "".join(
        f"<th{style}>{html.escape(name)}<br><small>{html.escape(_type(kind))}</small></th>"
        for name, kind, style in zip(names, types, aligned)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{style}>{'<i>NULL</i>' if value is None else html.escape(_cut(value, _LONGEST_HTML))}</td>"
            for value, style in zip(row, aligned)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<table class="warpline"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"<small>{html.escape(footer)}</small>"
    )


def _type(kind: str) -> str:
    """Arrow's word, shorter where it is long."""
    short = {"Utf8View": "Utf8", "LargeUtf8": "Utf8", "BinaryView": "Binary"}.get(kind, kind)
    return short if len(short) <= 24 else short[:23] + "…"


def _cell(value: str | None) -> str:
    if value is None:
        return "NULL"
    line = value.replace("\n", "⏎").replace("\r", "").replace("\t", " ")
    return _cut(line, _LONGEST)


def _cut(value: str, longest: int) -> str:
    return value if len(value) <= longest else value[: longest - 1] + "…"
