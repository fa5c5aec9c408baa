"""The memory screen: live and replay are the same screen with the same keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from memtui.core.errors import UserError
from memtui.core.options import INTERVAL_NS, MARK_CHARACTERS, MAX_OVERHEAD_PPM
from memtui.core.units import parse_budget_ppm, parse_interval_ns
from memtui.tui.presenters import Presenter, Room, SessionLike
from memtui.tui.screens.keys import KEYS
from memtui.tui.screens.layout import PANELS, Arrangement, arrange, too_small, word_rows
from memtui.tui.screens.presenter_thread import Action, Feed
from memtui.tui.screens.prompt import Prompt
from memtui.widgets.footer_line import FooterLine
from memtui.widgets.header_line import HeaderLine
from memtui.widgets.heat_map import HeatMap, picture_cells
from memtui.widgets.label import Notice
from memtui.widgets.output_pane import OutputPane
from memtui.widgets.panel import Panel
from memtui.widgets.plain_lines import DetailLines, PlainWords, detail_rows
from memtui.widgets.power_gauge import PowerGauge
from memtui.widgets.power_line import PowerLine, tells_nothing
from memtui.widgets.process_table import ProcessTable
from memtui.widgets.reuse_histogram import ReuseHistogram
from memtui.widgets.row_panel import RowPanel
from memtui.widgets.tensor_table import TensorTable
from memtui.widgets.views.memory import HeaderView, MemoryView, State
from memtui.widgets.vma_table import VmaTable
from memtui.widgets.wss_graph import WssGraph

SAID_S = 6.0
NOT_RECORDING = "this screen belongs to no recording: memtui attach PID shows one"


class ViewReady(Message):
    """A new picture. Only the newest of several waiting ones is worth drawing."""

    def __init__(self, view: MemoryView) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ViewReady)


class FeedFailed(Message):
    """The session could not be read this time."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class MemoryScreen(Screen[None]):
    """Everything about the memory of one target at one moment."""

    AUTO_FOCUS = ""  # the hidden prompt must not take the keys when a help screen closes
    BINDINGS: ClassVar[list[BindingType]] = list(KEYS)

    view: reactive[MemoryView | None] = reactive(None, repaint=False, init=False)

    def __init__(
        self,
        open_session: Callable[[], SessionLike],
        *,
        live: bool,
        refresh_s: float = 1.0,
        order: Callable[..., dict[str, Any]] | None = None,
        began_it: bool = True,
        first: str = "",
        process: int | None = None,
        said: str = "",
    ) -> None:
        super().__init__()
        self._first = first  # what is to lie on top as soon as there is something
        self._process, self._said = process, said  # which process to choose then, and what to say
        self._order = order
        self.feed = Feed(
            open_session,
            lambda view: self.post_message(ViewReady(view)),
            lambda why: self.post_message(FeedFailed(why)),
            live=live,
            refresh_s=refresh_s,
        )
        self.header, self.footer = HeaderLine(id="header"), FooterLine(id="footer")
        self.footer.began_it = began_it
        self.words, self.details = PlainWords(id="words"), DetailLines(id="details")
        self.details_shown = False
        self.graph, self.power = WssGraph(id="graph"), PowerGauge(id="power")
        self.power_line = PowerLine(id="power-line")
        self.quiet = False  # no source of power has anything to show
        self.heat, self.reuse = HeatMap(id="heat"), ReuseHistogram(id="reuse")
        self.table, self.notice = VmaTable(id="table"), Notice(id="notice")
        self.processes, self.tensors = ProcessTable(id="processes"), TensorTable(id="tensors")
        self._lists: dict[str, RowPanel] = {
            "table": self.table, "processes": self.processes, "tensors": self.tensors
        }  # fmt: skip
        self.listed = "table"  # which of them is in the place they share
        self.output = OutputPane(id="output")
        self.output.choose(True)  # up and down are about it whenever it is there
        self.output_shown = False  # in the place of all panels below the graph
        self.prompt = Prompt(self._typed, id="prompt")
        self._panels: dict[str, Panel] = {
            "heat": self.heat, "reuse": self.reuse, "table": self.table, "power": self.power
        }  # fmt: skip
        self.shape = Arrangement("tiny")
        self.panel: int | None = None  # chosen by the user; before that it depends on the size
        self._arranged: tuple[object, ...] = ()
        self._room = Room()
        self._told: dict[str, Any] = {}
        self._failed = False  # there is something to say in place of a first view

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.words
        yield self.details
        yield Horizontal(self.graph, self.power, id="top")
        yield self.power_line
        yield Horizontal(self.heat, self.reuse, id="middle")
        yield self.table
        yield self.processes
        yield self.tensors
        yield self.output
        yield self.footer
        yield self.prompt
        yield self.notice

    def on_mount(self) -> None:
        self._arrange()
        self.feed.start()

    def on_unmount(self) -> None:
        self.feed.stop()
        self.feed.join(2.0)

    # Layout

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Give every panel its place. A resize re-uses the last view until one for the new size arrives."""
        width, height = self.app.size
        # Before the first view there is nothing to lay out and draw but empty boxes, at the price of full ones.
        ready = self.view is not None or self._failed
        arranged = (
            width, height, self.panel, self.prompt.active, ready, self.listed, self.output_shown, self.details_shown,
            self.quiet,
        )  # fmt: skip
        if arranged == self._arranged:
            return
        self._arranged = arranged
        words, details = word_rows(width, height), detail_rows(width) * self.details_shown
        shape = self.shape = arrange(width, height, words + details, power=not self.quiet)
        large, tiny = shape.kind == "large", shape.kind == "tiny"
        lower = not tiny and not self.output_shown  # the panels that the output takes the place of
        chosen = self.chosen
        for name, panel in self._panels.items():
            panel.choose(large and name == chosen)
        self.power_line.choose(large and chosen == "power")
        for panel in self._lists.values():
            panel.choose(large and chosen == "table")
        seen: dict[Widget, bool] = {
            self.notice: tiny,
            self.header: not tiny,
            self.words: not tiny and bool(words),
            self.details: not tiny and bool(details),
            self.graph: not tiny,
            self.footer: not tiny and not self.prompt.active,
            self.prompt: not tiny and self.prompt.active,
            self.power: (large and not self.quiet) or (not large and lower and chosen == "power"),
            self.power_line: large and self.quiet,
            self.heat: lower and (large or chosen == "heat"),
            self.reuse: lower and (large or chosen == "reuse"),
            self.output: not tiny and self.output_shown,
        }
        for name, panel in self._lists.items():
            seen[panel] = lower and self.listed == name and (large or chosen == "table")
        # On a small screen the power panel sits with the others, not beside the graph.
        top, middle = self.query_one("#top"), self.query_one("#middle")
        seen[top], seen[middle] = not tiny, lower and (large or chosen in ("heat", "reuse"))
        self.notice.show(too_small(width, height))
        for widget, wanted in seen.items():
            widget.display = wanted and (ready or tiny)
        self.words.styles.height, self.details.styles.height = words, details
        top.styles.height = shape.top
        middle.styles.height = shape.middle
        self.set_class(shape.kind == "small", "small")
        if large:
            self.power.styles.width, self.power.styles.height = shape.power, shape.top
            self.heat.styles.width, self.reuse.styles.width = shape.heat, shape.reuse
            for panel in self._lists.values():
                panel.styles.height = shape.bottom
        elif not tiny:
            self.heat.styles.width, self.reuse.styles.width = width, width
            for panel in self._lists.values():
                panel.styles.height = shape.middle
            if chosen == "power" and lower:
                top.styles.height = shape.top + shape.middle
                self.power.styles.width, self.power.styles.height = width, shape.middle
        self.graph.styles.height = shape.top
        self.output.styles.height = shape.middle + shape.bottom
        columns, rows = picture_cells(shape.heat, shape.middle)
        room = Room(columns, rows)
        if room != self._room:  # every request costs a view
            self._room = room
            self._ask(lambda presenter: setattr(presenter, "room", room))
        if self.output_shown and not tiny:
            inside = width - 2, shape.middle + shape.bottom - 2
            self._ask(lambda presenter: presenter.output.resize(*inside))
        self._keys()

    # Views

    def on_view_ready(self, message: ViewReady) -> None:
        self.view = message.view
        first, self._first = self._first, ""
        if first == "training":
            self.action_allocations()
        if self._process is not None:
            self._list("processes")
            self.processes.selected, self._process = self._process, None
            self._look_at_row()
        if self._said:
            self._say(self._said)
            self._said = ""

    def on_feed_failed(self, message: FeedFailed) -> None:
        header = self.view.header if self.view is not None else HeaderView()
        self._failed = True
        self.header.show(replace(header, notice=message.why))
        self._arrange()

    def watch_view(self, view: MemoryView | None) -> None:
        """Hand the parts out; each panel draws only what differs."""
        if view is None:
            return
        self.quiet = tells_nothing(view.power)
        with self.app.batch_update():
            self._arrange()
            self.header.show(view.header)
            self.words.show(view.words)
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
        self._keys()

    def _keys(self) -> None:
        moving = self.view is None or self.view.header.state in (State.LIVE, State.PLAYING)
        self.footer.adapt(small=self.shape.kind == "small", pause_words="pause" if moving else "play")

    # Keys

    def _ask(self, action: Action) -> None:
        self.feed.do(action)

    def action_toggle_pause(self) -> None:
        self._ask(lambda presenter: presenter.playhead.toggle_pause())

    def action_step(self, by: int) -> None:
        self._ask(lambda presenter: presenter.playhead.step(by))

    def action_faster(self, by: int) -> None:
        self._ask(lambda presenter: presenter.playhead.faster(by))

    def action_home(self) -> None:
        if self.output_shown:
            self._ask(lambda presenter: presenter.output.home())
            return
        self._ask(lambda presenter: presenter.playhead.home())

    def action_to_end(self) -> None:
        if self.output_shown:
            self._ask(lambda presenter: presenter.output.end())
            return
        self._ask(lambda presenter: presenter.playhead.to_end())

    def action_widen(self, by: int) -> None:
        self._ask(lambda presenter: presenter.playhead.widen(by))

    def action_toggle_filters(self) -> None:
        self._show_ranges()

        def toggle(presenter: Presenter) -> None:
            presenter.ranges.filters_on = not presenter.ranges.filters_on

        self._ask(toggle)

    def action_sort(self) -> None:
        if self.listed == "tensors":
            self._ask(lambda presenter: presenter.tensors.next_sort())
            return
        self._show_ranges()
        self._ask(lambda presenter: presenter.ranges.next_sort())

    def action_reverse(self) -> None:
        if self.listed == "tensors":
            self._ask(lambda presenter: presenter.tensors.reverse())
            return
        self._show_ranges()
        self._ask(lambda presenter: presenter.ranges.sort_by(presenter.ranges.sort))

    @property
    def chosen(self) -> str:
        """The panel that up and down are about."""
        if self.panel is None:
            return "table" if self.shape.kind == "large" else PANELS[0]
        return PANELS[self.panel]

    def on_panel_chosen(self, message: Panel.Chosen) -> None:
        for name, panel in (*self._panels.items(), *(("table", panel) for panel in self._lists.values())):
            if panel is message.panel and self.chosen != name:
                self.panel = PANELS.index(name)
                self._arrange()

    def on_panel_time_asked(self, message: Panel.TimeAsked) -> None:
        self._ask(lambda presenter: presenter.playhead.seek(message.t_ns))

    def on_heat_map_pointed(self, message: HeatMap.Pointed) -> None:
        def point(presenter: Presenter) -> None:
            presenter.heat.point(message.row)
            if presenter.playhead.cursor_ns != message.t_ns:
                presenter.playhead.seek(message.t_ns)

        self._ask(point)

    def on_row_panel_selected(self, message: RowPanel.Selected) -> None:
        self._look_at_row()

    def _look_at_row(self) -> None:
        """Let all panels be about the row that is chosen."""
        key = self._rows.selected
        if self.listed == "processes":
            self.table.deselect()
            self._ask(lambda presenter: presenter.focus_process(key))
        elif self.listed == "tensors":
            self._ask(lambda presenter: presenter.look_at_tensor(key))
        else:
            self._focus_range(key)

    def action_details(self) -> None:
        self.details_shown = not self.details_shown
        self._arrange()

    def action_allocations(self) -> None:
        from memtui.tui.screens.training import TrainingScreen

        self.app.push_screen(TrainingScreen(self._ask))

    def action_output(self) -> None:
        self._show_output(not self.output_shown)

    def _show_output(self, shown: bool) -> None:
        if shown != self.output_shown:
            self.output_shown = shown
            self._arrange()
            self._ask(lambda presenter: setattr(presenter.output, "shown", shown))

    def on_output_pane_scrolled(self, message: OutputPane.Scrolled) -> None:
        self._ask(lambda presenter: presenter.output.move(message.by))

    def action_processes(self) -> None:
        self._list("processes")

    def action_tensors(self) -> None:
        self._list("tensors")

    def _list(self, name: str) -> None:
        """Show a list in the place of the ranges; where it is there already, the ranges again."""
        self._show_output(False)
        listed = self.listed = name if self.listed != name else "table"
        self.panel = PANELS.index("table")
        self._arrange()

        def tell(presenter: Presenter) -> None:
            presenter.processes_shown = listed == "processes"
            presenter.tensors_shown = listed == "tensors"

        self._ask(tell)

    def action_group(self) -> None:
        if self.listed != "tensors":
            self.action_tensors()
            return
        self.tensors.deselect()
        self._ask(lambda presenter: presenter.tensors.next_grouping())

    def action_kinds(self) -> None:
        if not self.heat.display:
            self.action_panel(PANELS.index("heat") + 1)

        def toggle(presenter: Presenter) -> None:
            presenter.by_kind = not presenter.by_kind

        self._ask(toggle)

    def _show_ranges(self) -> None:
        """Bring into sight what a key changes."""
        if self.listed != "table":
            self._list("table")

    @property
    def _rows(self) -> RowPanel:
        return self._lists[self.listed]

    def _focus_range(self, key: int | None) -> None:
        self._ask(lambda presenter: presenter.focus_range(key))

    def action_zoom(self, by: int) -> None:
        self._ask(lambda presenter: presenter.zoom(by))

    def action_move_cursor(self, by: int) -> None:
        self._ask(lambda presenter: presenter.heat.step(by))

    def action_pan(self, by: int) -> None:
        self._ask(lambda presenter: presenter.playhead.pan(by / 2))

    def action_pan_memory(self, by: int) -> None:
        self._ask(lambda presenter: presenter.heat.pan(by / 2))

    def on_vma_table_sort_asked(self, message: VmaTable.SortAsked) -> None:
        self._ask(lambda presenter: presenter.ranges.sort_by(message.sort))

    def action_miss_ratio(self) -> None:
        if not self.reuse.display:
            self.action_panel(PANELS.index("reuse") + 1)
        self.reuse.toggle()

    def action_memory_size(self, by: int) -> None:
        self.reuse.move(by)

    def action_mark(self, by: int) -> None:
        self._ask(lambda presenter: presenter.to_mark(by))

    def action_move(self, by: int) -> None:
        if self.output_shown:
            self._ask(lambda presenter: presenter.output.move(by))
            return
        match self.chosen:
            case "reuse":
                self.action_memory_size(-by)
            case "heat":
                self.action_move_cursor(by)
            case "table":
                self._rows.move(by)
                self._look_at_row()

    def action_page(self, by: int) -> None:
        if self.output_shown:
            self._ask(lambda presenter: presenter.output.page(by))
            return
        match self.chosen:
            case "heat":
                self.action_pan_memory(by)
            case "table":
                self._rows.page(by)
                self._look_at_row()

    def action_panel(self, number: int) -> None:
        self._show_output(False)
        if self.chosen != PANELS[number - 1]:
            self.panel = number - 1
            self._arrange()

    def action_next_panel(self, by: int = 1) -> None:
        self._show_output(False)
        self.panel = (PANELS.index(self.chosen) + by) % len(PANELS)
        self._arrange()

    def action_help(self) -> None:
        from memtui.tui.screens.help import HelpScreen

        about = "output" if self.output_shown else self.chosen
        if about == "table":
            about = self.listed
        self.app.push_screen(HelpScreen(about))

    def action_palette(self) -> None:
        from memtui.tui.screens.command_palette import PaletteScreen

        async def chosen(action: str | None) -> None:
            if action is not None:
                await self.run_action(action)

        self.app.push_screen(PaletteScreen(), chosen)

    # Prompts

    def take_key(self, event: events.Key) -> bool:
        """Whether a key belongs to what is being typed (see ``MemtuiApp.on_key``)."""
        return self.prompt.take(event)

    def action_filter(self) -> None:
        if self.listed == "tensors":
            words = self.view.tensors.filter_text if self.view is not None else ""
            self._open_prompt("filter", "/", words, "part of a layer or kind")
            return
        self._show_ranges()
        words = self.view.table.filter_text if self.view is not None else ""
        self._open_prompt("filter", "/", words)

    def action_jump(self) -> None:
        self._open_prompt("jump", "jump to", "", "7:12, 90, 5m, 50%, +30, -1:30")

    def action_put_mark(self) -> None:
        self._ask_recording("mark", "mark this moment", "its text")

    def action_interval(self) -> None:
        self._ask_recording("interval", "interval or budget", "seconds: 0.5, 50ms; per cent of its time: 5%, none")

    def _ask_recording(self, kind: str, label: str, hint: str) -> None:
        if self._order is None:
            self._say(NOT_RECORDING)
        else:
            self._open_prompt(kind, label, "", hint)

    def _say(self, words: str) -> None:
        """Why a key did nothing, for as long as that takes to read."""
        self.footer.say(words)
        self.set_timer(SAID_S, lambda: self.footer.say(""))

    def action_rest(self) -> None:
        async def rest() -> None:
            why = await self._tell("status") or await self._tell("resume" if self._told.get("paused") else "pause")
            if why:
                self._say(why)

        self.run_worker(rest(), group="order")

    async def _tell(self, do: str, **fields: Any) -> str:
        """Why the recording did not take it; empty when it did. What it answered is kept."""
        if self._order is None:
            return NOT_RECORDING
        try:
            self._told = await asyncio.to_thread(self._order, do, **fields)
        except UserError as error:
            return str(error)
        return ""

    def action_lift(self) -> None:
        """Close the output, look at all ranges again, or forget the typed filter."""
        if self.output_shown:
            self._show_output(False)
        elif self.listed == "tensors" and self.tensors.selected is not None:
            self.tensors.deselect()
            self._ask(lambda presenter: presenter.heat.unpoint())
        elif self.table.selected is not None:
            self.table.deselect()
            self._focus_range(None)
        elif self.processes.selected is not None:
            self.processes.deselect()
            self._ask(lambda presenter: presenter.focus_process(None))
        else:
            self._filter("")
            self._ask(lambda presenter: presenter.heat.unpoint())

    def _open_prompt(self, kind: str, label: str, words: str, hint: str = "part of a name, address or perms") -> None:
        self.prompt.open(kind, label, words, hint)
        self._arrange()

    def on_prompt_changed(self, message: Prompt.Changed) -> None:
        if message.kind == "filter":
            self._filter(message.words)

    def _typed(self, kind: str, words: str, kept: bool) -> None:
        if kind == "filter":
            self._filter(words if kept else "")
        elif kept and kind in ("mark", "interval"):
            self._order_typed(kind, words)
            return
        elif kept:

            def jump(presenter: Presenter) -> None:
                why = presenter.playhead.jump(words)
                self.app.call_later(self._answered, why)

            self._ask(jump)
            return
        self._close_prompt()

    def _order_typed(self, kind: str, words: str) -> None:
        """Say in place what cannot be; the rest goes to the recording, and the next key is for the screen again."""
        if kind == "mark":
            fields: dict[str, Any] = {"text": words.strip()[:MARK_CHARACTERS]}
            why = "" if fields["text"] else "a mark has a text"
        else:
            fields, why = {}, ""
            try:
                if words.strip() == "none" or "%" in words:
                    kind, fields = "budget", {"ppm": parse_budget_ppm(words, MAX_OVERHEAD_PPM) or 0}
                else:
                    fields = {"interval_ns": parse_interval_ns(words, INTERVAL_NS)}
            except ValueError as error:
                why = str(error)
        self._answered(why)

        async def order() -> None:
            if why := await self._tell(kind, **fields):
                self._say(why)

        if not why:
            self.run_worker(order(), group="order")

    def _answered(self, why: str) -> None:
        """Act on an answer; what cannot be done keeps the prompt open, with the reason in place."""
        if why:
            self.prompt.complain(why)
        else:
            self._close_prompt()

    def _close_prompt(self) -> None:
        self.prompt.close()
        self._arrange()

    def _filter(self, words: str) -> None:
        tensors = self.listed == "tensors"
        self._ask(lambda presenter: setattr(presenter.tensors if tensors else presenter.ranges, "words", words.strip()))
