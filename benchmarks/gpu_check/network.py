"""ResNet-50 as one and as the sum of its operators, and predictions fitted to the GPU's own rows."""

from __future__ import annotations

from benchmarks.gpu_check.checks import Report
from benchmarks.gpu_check.children import run_memtui, torch_with_cuda

BATCH = 64


def run(report: Report) -> None:
    """Run the stage."""
    if torch_with_cuda(report) is None:
        return
    database = report.folder / "network.db"
    common = ("--device", "cuda", "--no-tui", "--db", database)
    with report.part("ResNet-50"):
        # A batch that keeps the GPU busy: with one image its kernels are faster than the calls that start them.
        text = run_memtui(
            "bench", "resnet50", "--grid", f"n={BATCH}", "--windows", 1, "--seconds", 0.5, "--warm-up", 0.5, *common,
            folder=report.folder, seconds=260,
        )  # fmt: skip
        (report.folder / "resnet50.txt").write_text(text)
        for line in text.strip().splitlines()[-4:]:
            report.figure("ResNet-50, network against the sum of its operators", line.strip())
    with report.part("prediction"):
        of = ("conv2d", "--db", database)
        run_memtui("bench", "predict", "fit", *of, "--force", folder=report.folder, name="fit")
        text = run_memtui("bench", "predict", "eval", *of, folder=report.folder, name="eval")
        (report.folder / "prediction.txt").write_text(text)
        for line in text.splitlines()[:12]:
            report.figure("prediction", line.strip())
