"""The widgets of the memory screen: which are in sight, how large each is, and the part of a view that each shows."""

from __future__ import annotations

from textual.containers import Horizontal
from textual.widget import Widget

from memtui.tui.presenters import Room
from memtui.tui.screens.layout import PANELS, Arrangement, arrange, panels_in_sight, sentence_rows, too_small
from memtui.tui.screens.prompt import Prompt
from memtui.widgets.footer_line import FooterLine
from memtui.widgets.header_line import HeaderLine
from memtui.widgets.heat_map import HeatMap, picture_cells
from memtui.widgets.label import Notice
from memtui.widgets.output_pane import OutputPane
from memtui.widgets.panel import Panel
from memtui.widgets.power_gauge import PowerGauge
from memtui.widgets.power_line import PowerLine, tells_nothing
from memtui.widgets.process_table import ProcessTable
from memtui.widgets.reuse_histogram import ReuseHistogram
from memtui.widgets.row_panel import RowPanel
from memtui.widgets.sentence_lines import DetailLines, SummaryLines, detail_rows
from memtui.widgets.tensor_table import TensorTable
from memtui.widgets.views.memory import MemoryView
from memtui.widgets.vma_table import VmaTable
from memtui.widgets.wss_graph import WssGraph


class MemoryPanels:
    """Has every widget of the screen and knows what the user chose to see.

    ``arrange`` must follow a change of ``panel``, ``listed``, ``output_shown`` or ``details_shown``.

    Args:
        prompt: takes the place of the footer while it is open.
        owns_recording: leaving the screen ends the recording.
    """

    def __init__(self, prompt: Prompt, *, owns_recording: bool) -> None:
        self.header, self.footer = HeaderLine(id="header"), FooterLine(id="footer")
        self.footer.owns_recording = owns_recording
        self.summary, self.details = SummaryLines(id="words"), DetailLines(id="details")
        self.graph, self.power = WssGraph(id="graph"), PowerGauge(id="power")
        self.power_line = PowerLine(id="power-line")
        self.heat, self.reuse = HeatMap(id="heat"), ReuseHistogram(id="reuse")
        self.table, self.notice = VmaTable(id="table"), Notice(id="notice")
        self.processes, self.tensors = ProcessTable(id="processes"), TensorTable(id="tensors")
        self.output = OutputPane(id="output")
        self.output.choose(True)  # up and down are about it whenever it is there
        self.prompt = prompt
        self._top = Horizontal(self.graph, self.power, id="top")
        self._middle = Horizontal(self.heat, self.reuse, id="middle")
        self._lists: dict[str, RowPanel] = {
            "table": self.table, "processes": self.processes, "tensors": self.tensors
        }  # fmt: skip
        self._panels: dict[str, Panel] = {
            "heat": self.heat, "reuse": self.reuse, "table": self.table, "power": self.power
        }  # fmt: skip
        self.panel: int | None = None  # chosen by the user, of PANELS; before that it depends on the size
        self.listed = "table"  # which of the lists is in the place they share
        self.output_shown = False  # in the place of all panels below the graph
        self.details_shown = False
        self.shape = Arrangement("tiny")
        self._arranged: tuple[object, ...] = ()

    @property
    def rows(self) -> RowPanel:
        """Return the list in the place that lists share."""
        return self._lists[self.listed]

    @property
    def chosen(self) -> str:
        """Return the panel that up and down are about."""
        if self.panel is None:
            return "table" if self.shape.kind == "large" else PANELS[0]
        return PANELS[self.panel]

    @property
    def subject(self) -> str:
        """Return the first subject of the help: the output, a list or a panel."""
        if self.output_shown:
            return "output"
        return self.listed if self.chosen == "table" else self.chosen

    def name_of(self, panel: Panel) -> str | None:
        """Return the name in PANELS of a panel, "table" for every list; None: it cannot be chosen."""
        named = (*self._panels.items(), *(("table", rows) for rows in self._lists.values()))
        return next((name for name, widget in named if widget is panel), None)

    def widgets(self) -> tuple[Widget, ...]:
        """Return the widgets of the screen, from the top down."""
        return (
            self.header, self.summary, self.details, self._top, self.power_line, self._middle,
            *self._lists.values(), self.output, self.footer, self.prompt, self.notice,
        )  # fmt: skip

    def show(self, view: MemoryView) -> None:
        """Show the parts of a view; each panel draws only changed lines."""
        self.header.show(view.header)
        self.summary.show(view.sentences)
        self.details.show(view.header)
        self.graph.show(view.graph)
        self.power.show(view.power)
        self.power_line.show(view.power)
        self.heat.show(view.heat)
        self.reuse.show(view.reuse)
        self.table.show(view.table)
        self.processes.show(view.processes)
        self.tensors.show(view.tensors)
        self.output.show(view.output)
        self.footer.show(view.footer)

    # Layout

    def arrange(self, width: int, height: int, view: MemoryView | None, *, failed: bool) -> bool:
        """Arrange the widgets for the size of the terminal. Returns False where nothing has changed.

        Before the first view no panel is shown: empty boxes would cost as much as full ones. An error (``failed``) is
        shown. A resize re-uses the last view until a view for the new size arrives.
        """
        ready, power = view is not None or failed, view is None or not tells_nothing(view.power)
        arranged = (
            width, height, self.panel, self.prompt.active, ready, self.listed, self.output_shown, self.details_shown,
            power,
        )  # fmt: skip
        if arranged == self._arranged:
            return False
        self._arranged = arranged
        summary_rows, details = sentence_rows(width, height), detail_rows(width) * self.details_shown
        self.shape = arrange(width, height, summary_rows + details, power=power)
        self._choose()
        in_sight = panels_in_sight(
            self.shape.kind,
            self.chosen,
            self.listed,
            sentences=bool(summary_rows),
            details=bool(details),
            power=power,
            output=self.output_shown,
            prompt=self.prompt.active,
        )
        self.notice.show(too_small(width, height))
        for widget in (*self.widgets(), self.graph, self.power, self.heat, self.reuse):
            widget.display = widget.id in in_sight and (ready or self.shape.kind == "tiny")
        self.summary.styles.height, self.details.styles.height = summary_rows, details
        self._resize(width)
        return True

    def _choose(self) -> None:
        """Highlight the border of the chosen panel, on a screen with several panels."""
        chosen = self.chosen if self.shape.kind == "large" else ""
        for name, panel in self._panels.items():
            panel.choose(name == chosen)
        self.power_line.choose(chosen == "power")
        for rows in self._lists.values():
            rows.choose(chosen == "table")

    def _resize(self, width: int) -> None:
        shape = self.shape
        self._top.styles.height = self.graph.styles.height = shape.top
        self._middle.styles.height = shape.middle
        self.output.styles.height = shape.middle + shape.bottom
        if shape.kind == "large":
            self.power.styles.width, self.power.styles.height = shape.power, shape.top
            self.heat.styles.width, self.reuse.styles.width = shape.heat, shape.reuse
            for rows in self._lists.values():
                rows.styles.height = shape.bottom
        elif shape.kind == "small":
            self.heat.styles.width, self.reuse.styles.width = width, width
            for rows in self._lists.values():
                rows.styles.height = shape.middle
            if self.chosen == "power" and not self.output_shown:  # it sits with the others, not beside the graph
                self._top.styles.height = shape.top + shape.middle
                self.power.styles.width, self.power.styles.height = width, shape.middle

    @property
    def heat_cells(self) -> Room:
        """Return the size of the picture in the heat map."""
        return Room(*picture_cells(self.shape.heat, self.shape.middle))

    @property
    def output_rows(self) -> int:
        """Return the number of lines of output that have room."""
        return self.shape.middle + self.shape.bottom - 2
