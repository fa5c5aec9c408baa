"""ResNet-50 as one and as the sum of its operators, and predictions fitted to the GPU's own rows."""

from __future__ import annotations

from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import run_memtui


def run(report: Report) -> None:
    """Run the stage."""
    import torch

    if not torch.cuda.is_available():
        report.missing("network", f"this PyTorch ({torch.__version__}) finds no CUDA device")
        return
    database = report.folder / "network.db"
    common = ("--device", "cuda", "--no-tui", "--db", database)
    with report.part("ResNet-50"):
        text = run_memtui("bench", "resnet50", "--quick", *common, folder=report.folder, seconds=150)
        (report.folder / "resnet50.txt").write_text(text)
        for line in text.strip().splitlines()[-4:]:
            report.figure("ResNet-50, network against the sum of its operators", line.strip())
    with report.part("prediction"):
        run_memtui(
            "bench",
            "predict",
            "fit",
            "conv2d",
            "--db",
            database,
            "--force",
            folder=report.folder,
            seconds=120,
            name="fit",
        )
        text = run_memtui(
            "bench", "predict", "eval", "conv2d", "--db", database, folder=report.folder, seconds=120, name="eval"
        )
        (report.folder / "prediction.txt").write_text(text)
        for line in text.splitlines()[:12]:
            report.figure("prediction", line.strip())
