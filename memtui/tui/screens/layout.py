"""The panels in sight and the size of each: three layouts by the size of the terminal. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

MIN_COLUMNS, MIN_ROWS = 60, 16
LARGE_COLUMNS, LARGE_ROWS = 100, 30
PANELS = ("heat", "reuse", "table", "power")  # chosen by 1-4 on a small screen


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Sizes in cells. ``kind`` is "large" (all panels), "small" (graph and one panel) or "tiny" (a sentence)."""

    kind: str
    top: int = 0
    middle: int = 0
    bottom: int = 0
    power: int = 0
    heat: int = 0
    reuse: int = 0


def too_small(width: int, height: int) -> str:
    """Return why a size is too small for a screen; empty where it is large enough."""
    if width >= MIN_COLUMNS and height >= MIN_ROWS:
        return ""
    return f"memtui needs {MIN_COLUMNS}x{MIN_ROWS} cells, this terminal has {width}x{height}"


def sentence_rows(width: int, height: int) -> int:
    """Return the number of rows for the summary in sentences: 0 where panels have little room."""
    if height < 24:
        return 0
    return 2 if width >= LARGE_COLUMNS and height >= 34 else 1


def arrange(width: int, height: int, above: int = 0, *, power: bool = True) -> Arrangement:
    """Return the layout for a terminal of a size.

    ``above``: rows of the terminal between header and panels that are in use. Without ``power`` the panel of power is
    a single line on a large screen, which is not a row of a panel.
    """
    if too_small(width, height):
        return Arrangement("tiny")
    rows = height - 2 - above  # header and footer
    if width < LARGE_COLUMNS or height < LARGE_ROWS:
        top = 8 if rows >= 20 else 6
        return Arrangement("small", top=top, middle=rows - top, power=width, heat=width, reuse=width)
    rows -= not power
    top = min(15, max(8, round(rows * 0.26)))
    middle = min(30, max(10, round(rows * 0.38)))
    gauge = min(40, max(29, width // 6)) if power else 0
    heat = min(width - 48, round(width * 0.54))
    return Arrangement("large", top, middle, rows - top - middle, gauge, heat, width - heat)


def panels_in_sight(
    kind: str,
    chosen: str,
    listed: str,
    *,
    sentences: bool = True,
    details: bool = False,
    power: bool = True,
    output: bool = False,
    prompt: bool = False,
) -> frozenset[str]:
    """Return the ids of the widgets of the memory screen that are to be seen.

    Args:
        kind: of the ``Arrangement``.
        chosen: the panel of ``PANELS`` that the user chose, the only one on a small screen.
        listed: the list in the place of the table: "table", "processes" or "tensors".
        sentences: there is room for the sentences under the header.
        details: the lines about the measurement are shown.
        power: some source of power has something to show.
        output: the output of the program takes the place of the panels below the graph.
        prompt: something is being typed.
    """
    if kind == "tiny":
        return frozenset({"notice"})
    ids = {"header", "top", "graph", "prompt" if prompt else "footer"}
    optional = {"words": sentences, "details": details, "output": output}
    ids.update(name for name, wanted in optional.items() if wanted)
    if kind == "large":
        ids.add("power" if power else "power-line")
    if output:
        return frozenset(ids)
    below = PANELS[:3] if kind == "large" else (chosen,)
    ids.update(listed if name == "table" else name for name in below)
    if ids & {"heat", "reuse"}:
        ids.add("middle")
    return frozenset(ids)
