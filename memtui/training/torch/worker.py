"""The process that trains: ``python -m memtui.training.torch.worker NETWORK SETTINGS``, started by ``memtui train``.

The process prints lines as ZPP-MEM does. It also sends its learning curve to the recorder that traces it, if there is
one; and it leaves a result for the process that started it, with ``--result``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtui.analysis.peak_segment import Peak, peak_of
from memtui.core.errors import FAILURE, UserError
from memtui.core.frozen_imports import frozen_imports
from memtui.core.os_errors import WRITE, refused
from memtui.core.processes import exit_with_parent
from memtui.core.progress_line import ProgressLine, above_line
from memtui.core.text import printable
from memtui.core.tracer_messages import MAIN_MEMORY, AllocationStep, LearningProgress, TracerMessage
from memtui.session.tables.allocations import trace_of
from memtui.session.tables.learning import About, about_text
from memtui.training.datasets import CLASSES, check_batch, load, shape_of
from memtui.training.learning_curve import Curve
from memtui.training.network_specs import data_shape, layers_of
from memtui.training.plots import write_plots
from memtui.training.result import PeakMemory, TrainingResult
from memtui.training.settings import Settings, settings_from

if TYPE_CHECKING:
    from memtui.analysis.allocation_trace import StepTrace
    from memtui.recording.tracer.tracer import Tracer
    from memtui.training.torch.network import Network

EVERY = 2  # steps are recorded from the third on, so that the fifth iteration is recorded
UNRECORDED = "fewer than three iterations ran, or the profiler of torch does not work here"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m memtui.training.torch.worker", allow_abbrev=False)
    parser.add_argument("network", metavar="NETWORK")
    parser.add_argument("settings", metavar="SETTINGS", help="JSON: what differs from the defaults")
    parser.add_argument("--result", type=Path, metavar="FILE", help="write what came of it, as JSON")
    parser.add_argument("--progress-to", choices=("stdout", "stderr"), default="stdout", help="where lines go")
    parser.add_argument(
        "--progress-line", action="store_true", help="say on stderr how far it is where that takes long"
    )
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write event files into a new folder there")
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help="end when that process ends")
    given = parser.parse_args(arguments)
    if given.exit_with_parent is not None:
        exit_with_parent(given.exit_with_parent)
    stream = sys.stdout if given.progress_to == "stdout" else sys.stderr

    def print_line(line: str) -> None:
        try:
            with above_line():
                print(line, file=stream, flush=True)
        except OSError:  # the reader is gone: the training goes on
            pass

    try:
        with ProgressLine("train", f"reading data for {given.network}", wanted=given.progress_line):
            result = train(given.network, settings_from(json.loads(given.settings)), print_line, given.tensorboard)
        if given.result is not None:
            given.result.write_text(json.dumps(result.to_dict()))
    except UserError as error:
        print(printable(f"memtui train: {error}"), file=sys.stderr, flush=True)
        return error.code
    except KeyboardInterrupt:
        return 130
    return 0


def train(
    name: str, settings: Settings, print_line: Callable[[str], object], tensorboard: Path | None = None
) -> TrainingResult:
    """Run one training, from reading the data to the last line. ``tensorboard``: a folder for event files.

    Raises:
        UserError: data cannot be read, torch is missing, a file cannot be read or written.
    """
    outputs = CLASSES[settings.dataset_name]
    shape = shape_of(settings.dataset_name, data_shape(settings.sequence))
    description = layers_of(settings.sequence, outputs)
    data = load(settings.dataset_name, shape, settings.data, settings.seed)
    check_batch(settings.batch_size, len(data.images))
    with frozen_imports():
        try:
            import torch
        except ImportError as error:
            raise UserError(f"PyTorch cannot be imported ({error}): pip install 'memtui[torch]'", FAILURE) from None
        from memtui.training.torch.event_files import EventFiles
        from memtui.training.torch.loop import Training
        from memtui.training.torch.network import Network
        from memtui.training.torch.rules import BY_NAME
        from memtui.training.torch.weights_file import restore, save

    torch.set_grad_enabled(False)
    rule = BY_NAME[settings.type]()
    network = Network(description, data.shape, outputs, rule, settings.seed)
    if settings.restore_model:
        restore(network, Path(settings.restore_model_path or ""))
    training = Training(settings, network, data, print_line)
    segments = tuple(segment.names for segment in network.segments)
    about = About(os.getpid(), name, settings.type, settings.to_dict(), segments, not rule.keeps_all)
    run = f"{name}_{settings.type}_{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    statistics = _statistics(settings, run)
    _describe(print_line, name, settings, network, data.shape)
    written: list[Path] = []
    with nullcontext() if tensorboard is None else closing(EventFiles(tensorboard, run, about.settings)) as events:
        listener = _TraceListener(network, training.optimiser, None if events is None else events.add_memory)
        curve = Curve(os.getpid(), about_text(about), listener.send, None if events is None else events.add_point)

        def traced(again: Callable[[], object]) -> None:
            listener.end_own()
            if settings.memory_only:
                if listener.trace is None:
                    raise UserError(f"the iteration was not recorded: {UNRECORDED}", FAILURE)
                written.extend(write_plots(listener.trace, run, f"{name} by {settings.type}", segments))

            if settings.save_graph:
                from memtui.training.torch.graph import graph_of, write_graph

                written.extend(write_graph(*graph_of(network, again), run))

        training.run(curve, statistics, traced, events)
        listener.end_own()
        curve.end(training.iterations, training.epochs or 1)
    written.extend(output.path for output in (statistics, events) if output is not None)
    for path in written:
        print_line(f"wrote {printable(str(path))}")
    peak = peak_of(listener.trace, segments) if listener.trace is not None else None
    _conclude(print_line, training, peak, rule.keeps_all)
    if settings.save_model:
        save(network, Path(settings.save_model_path or ""))
        print_line(f"saved {printable(settings.save_model_path or '')}")
    return TrainingResult(
        training.epochs,
        training.iterations,
        training.accuracy,
        training.loss,
        training.stopped,
        [str(path) for path in written],
        "" if training.accuracy is not None else _unmeasured(settings, training.iterations),
        _peak_memory(peak),
    )


class _TraceListener:
    """Receives the recorded steps of this process, from the recorder or, for a few iterations, from its own tracer."""

    def __init__(self, network: Network, optimiser: Any, on_step: Callable[[StepTrace], object] | None = None) -> None:
        """``on_step`` receives each recorded step of main memory."""
        from memtui.recording.tracer import tracer

        self.trace: StepTrace | None = None
        self._own: Tracer | None = None
        self._on_step = on_step
        active = tracer.current()
        if active is None:
            active = self._own = tracer.quietly(EVERY, (network,), (optimiser,))
        self._tracer = active
        if active is not None:
            active.also = self._receive

    def send(self, message: LearningProgress) -> bool:
        """Send a message to the recorder; return True also where there is no recorder."""
        return self._own is not None or self._tracer is None or self._tracer.report(message)

    def end_own(self) -> None:
        """Stop the process's own tracer: the result has what it needs, and the training goes on untraced."""
        if self._own is not None:
            self._own.close()

    def _receive(self, message: TracerMessage) -> None:
        from memtui.training.torch.loop import TRACED

        if not isinstance(message, AllocationStep) or message.device != MAIN_MEMORY:
            return
        is_early = message.step < TRACED
        if not is_early and self._on_step is None:
            return
        trace = trace_of(message)
        if is_early:
            self.trace = trace
        if self._on_step is not None:
            self._on_step(trace)


def _statistics(settings: Settings, run: str) -> Any:
    if not settings.gather_stats:
        return None
    from memtui.training.torch.statistics import Statistics

    try:
        return Statistics(Path("stats") / f"{run}.csv")
    except OSError as error:
        raise refused(error.filename, error, WRITE, code=FAILURE) from None


def _describe(
    print_line: Callable[[str], object], name: str, settings: Settings, network: Network, shape: tuple[int, ...]
) -> None:
    count = sum(parameter.numel() for parameter in network.parameters())
    print_line(
        f"{name} by {settings.type}: {count:,} parameters in {len(network.segments)} segments, {settings.dataset_name} "
        f"{'x'.join(map(str, shape))}, batch {settings.batch_size}, learning rate {settings.learning_rate:g}, "
        f"momentum {settings.momentum:g}, seed {settings.seed}, {settings.epochs} epochs, pid {os.getpid()}"
    )


def _conclude(print_line: Callable[[str], object], training: Any, peak: Peak | None, keeps_all: bool) -> None:
    from memtui.analysis.peak_segment import peak_sentence

    if peak is not None:
        print_line(peak_sentence(peak, single_segment=not keeps_all))
    if training.stopped is not None:
        print_line(f"stopped: {training.stopped}")
    if training.accuracy is not None:
        print_line(
            f"total accuracy: {training.accuracy:.2f}%, loss: {training.loss:.4f}, "
            f"acc iterations: {training.iterations}"
        )


def _unmeasured(settings: Settings, iterations: int) -> str:
    if settings.memory_only:
        return "memory_only stops before the accuracy is measured"
    return f"training ended after {iterations} iterations, before the accuracy was measured"


def _peak_memory(peak: Peak | None) -> PeakMemory:
    if peak is None:
        return PeakMemory(peak_reason=UNRECORDED)
    return PeakMemory(
        peak.bytes_,
        peak.above_start_bytes,
        peak.parts,
        peak.parts.get("activations", 0),
        list(peak.segment) or None,
        peak.segment_bytes if peak.segment else None,
        peak.op,
    )


if __name__ == "__main__":
    sys.exit(main())
