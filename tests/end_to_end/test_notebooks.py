"""The notebooks run from top to bottom, on recordings that they make themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.recording.background_recording import environment

pytestmark = pytest.mark.real_clock(alone=False)

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
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


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_and_draws(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where they record
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(FOLDER / name, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are in docs/notebooks"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= FIGURES[name]
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]


def test_each_of_them_is_tried():
    assert set(FIGURES) == set(NOTEBOOKS)
