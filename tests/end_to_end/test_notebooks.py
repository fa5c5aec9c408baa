"""The notebooks run from top to bottom, on recordings that they make themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.recording.background_recording import environment
from tests.conftest import LONG

pytestmark = pytest.mark.real_clock(alone=False)

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
jupyter_client = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")  # nbclient needs it
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
FIGURES = {
    "basic_analysis.ipynb": 4,
    "batch_size.ipynb": 2,
    "cpu_analysis.ipynb": 2,
    "energy.ipynb": 2,
    "filters.ipynb": 1,
    "placement.ipynb": 2,
    "sample_time.ipynb": 1,
}  # at least, on any machine
SHORT = ("filters.ipynb", "placement.ipynb")  # of these every test run sees that they work


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Start the one kernel that all notebooks run in: a start takes as long as a short notebook."""
    folder = tmp_path_factory.mktemp("kernel")
    manager = jupyter_client.KernelManager()
    given = {"PYTHONPATH": environment()["PYTHONPATH"], "TMPDIR": str(folder)}  # where they record
    given |= {"XDG_STATE_HOME": str(folder / "state"), "IPYTHONDIR": str(folder / "ipython")}
    manager.start_kernel(cwd=str(folder), env={**os.environ, **given})
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in NOTEBOOKS]
)
def test_it_runs_and_draws(name, kernel):
    notebook = nbformat.read(FOLDER / name, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are in docs/notebooks"
    for cell in notebook.cells if not LONG else ():
        cell.source = re.sub(r"\bIMAGES(.*) = 1000\b", r"IMAGES\1 = 300", cell.source)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    client = nbclient.NotebookClient(notebook, km=kernel, timeout=300)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= FIGURES[name]
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]


def test_each_of_them_is_tried():
    assert set(FIGURES) == set(NOTEBOOKS)
