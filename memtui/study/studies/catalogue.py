"""The studies, by name; the order is that of ``memtui study all``."""

from __future__ import annotations

from memtui.study.studies.base import Study
from memtui.study.studies.basic import Basic
from memtui.study.studies.batch_size import BatchSize
from memtui.study.studies.cpus import Cpus
from memtui.study.studies.fast_memory.study import FastMemory
from memtui.study.studies.filters import Filters
from memtui.study.studies.network import Networks
from memtui.study.studies.overhead import Overhead
from memtui.study.studies.sample_time.study import SampleTime

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (Basic(), SampleTime(), Filters(), BatchSize(), Networks(), Cpus(), Overhead(), FastMemory())
}
