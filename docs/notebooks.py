"""Runs the notebooks and writes what they show into ``docs/notebooks/``: ``python docs/notebooks.py [NAME ...]``."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from markdown_it import MarkdownIt
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
STYLE = """
body { max-width: 60em; margin: 2em auto; padding: 0 1em; font: 16px/1.5 sans-serif; color: #222; background: #fff }
pre { overflow-x: auto; padding: .6em; font-size: 13px; line-height: 1.35 }
pre.code { background: #f3f4f6 }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
td, th { padding: .2em .6em; text-align: right; border-bottom: 1px solid #ddd }
img { max-width: 100% }
"""
STYLE_OF_A_FRAME = re.compile(r"<style scoped>.*?</style>\n?", re.DOTALL)
SMALL = "import matplotlib.pyplot as plt\nplt.rcParams['figure.dpi'] = 72"


def executed(path: Path) -> Any:
    """Return a notebook with its outputs."""
    notebook = nbformat.read(path, 4)
    with TemporaryDirectory() as folder:
        small = nbformat.v4.new_code_cell(SMALL)
        notebook.cells.insert(0, small)
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
        notebook.cells.remove(small)
    return notebook


def page(name: str, notebook: Any) -> str:
    """Return a notebook as one page without scripts."""
    markdown = MarkdownIt()
    parts = [
        markdown.render(cell.source)
        if cell.cell_type == "markdown"
        else f'<pre class="code">{escape(cell.source)}</pre>\n' + "\n".join(map(shown, cell.outputs))
        for cell in notebook.cells
    ]
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(name)}</title>\n'
    parts = [part.replace(str(Path.home()), "/home/you") for part in parts]  # a cell says where its session lies
    return f"{head}<style>{STYLE}</style>\n{''.join(parts)}\n</html>\n"


def shown(output: Any) -> str:
    """Return an output of a cell: its figure, its table, or its text."""
    if output.output_type == "stream":
        return f"<pre>{escape(output.text)}</pre>"
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"].split())}">'
    if "text/html" in data:
        return STYLE_OF_A_FRAME.sub("", data["text/html"])  # STYLE has one for all tables
    return f"<pre>{escape(data.get('text/plain', ''))}</pre>"


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            target = ROOT / "docs" / "notebooks" / f"{path.stem}.html"
            target.parent.mkdir(exist_ok=True)
            target.write_text(page(path.stem, executed(path)))
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
