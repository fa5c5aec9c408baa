"""The memory screen: live and replay are the same screen with the same keys."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.timer import Timer

from memtui.session.session import Session
from memtui.tui.presenters import Room
from memtui.tui.screens.layout import PANELS
from memtui.tui.screens.memory.keys import KEYS
from memtui.tui.screens.memory.messages import FeedFailed, KeyRefused, ViewReady
from memtui.tui.screens.memory.panels import MemoryPanels
from memtui.tui.screens.memory.prompts import MemoryPrompts, set_filter
from memtui.tui.screens.memory.recording_requests import NOT_RECORDING, RecordingRequest, RecordingRequests, Send
from memtui.tui.screens.presenter_thread import Action, PresenterThread
from memtui.tui.screens.prompt import Prompt
from memtui.widgets.heat_map import HeatMap
from memtui.widgets.output_pane import OutputPane
from memtui.widgets.panel import Panel
from memtui.widgets.row_panel import RowPanel
from memtui.widgets.views.memory import HeaderView, MemoryView, State
from memtui.widgets.vma_table import VmaTable

NO_CURVE = "there is no miss ratio: no page was touched twice yet"
MESSAGE_S = 6.0  # how long the footer shows why a key did nothing
DONE_S = 2.0  # of a message about an accepted request


class MemoryScreen(Screen[None]):
    """The memory screen: all about the memory of one target at one moment."""

    AUTO_FOCUS = ""  # the hidden prompt must not take the keys when a help screen closes
    BINDINGS: ClassVar[list[BindingType]] = list(KEYS)

    view: reactive[MemoryView | None] = reactive(None, repaint=False, init=False)

    def __init__(
        self,
        open_session: Callable[[], Session],
        *,
        live: bool,
        refresh_s: float = 1.0,
        order: Send | None = None,
        owns_recording: bool = True,
        first: str = "",
        process: int | None = None,
        message: str = "",
    ) -> None:
        super().__init__()
        self._first = first  # the screen to push with the first view
        self._process, self._message = process, message  # the process to choose then, and a line to show
        self._recording = RecordingRequests(order)
        self.feed = PresenterThread(
            open_session,
            lambda view: self.post_message(ViewReady(view)),
            lambda why: self.post_message(FeedFailed(why)),
            live=live,
            refresh_s=refresh_s,
        )
        self._prompts = MemoryPrompts(self._do, self._send, self._arrange, self._choose_size)
        self.panels = MemoryPanels(self._prompts.widget, owns_recording=owns_recording)
        self._room = Room()
        self._message_timer: Timer | None = None
        self._failed = False  # an error is shown in place of a first view

    def compose(self) -> ComposeResult:
        yield from self.panels.widgets()

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
        """Arrange the panels, and send the presenter the size of the picture where it has changed."""
        width, height = self.app.size
        panels = self.panels
        if not panels.arrange(width, height, self.view, failed=self._failed):
            return
        self.set_class(panels.shape.kind == "small", "small")
        room = panels.heat_cells
        if room != self._room:  # every request costs a view
            self._room = room
            self._do(lambda presenter: setattr(presenter, "room", room))
        if panels.output_shown and panels.shape.kind != "tiny":
            inside = width - 2, panels.output_rows
            self._do(lambda presenter: presenter.output.resize(*inside))
        self._adapt_footer()

    # Views

    def on_view_ready(self, message: ViewReady) -> None:
        self.view = message.view
        first, self._first = self._first, ""
        if first == "training":
            self.action_allocations()
        if self._process is not None:
            self._list("processes")
            self.panels.processes.selected, self._process = self._process, None
            self._focus_selected_row()
        if self._message:
            self._show_message(self._message)
            self._message = ""

    def on_key_refused(self, message: KeyRefused) -> None:
        self._show_message(message.why)

    def on_feed_failed(self, message: FeedFailed) -> None:
        header = self.view.header if self.view is not None else HeaderView()
        self._failed = True
        self.panels.header.show(replace(header, notice=message.why))
        self._arrange()

    def watch_view(self, view: MemoryView | None) -> None:
        """Show the parts of the view; each panel draws only changed lines."""
        if view is None:
            return
        with self.app.batch_update():
            self._arrange()
            self.panels.show(view)
        self._adapt_footer()

    def _adapt_footer(self) -> None:
        moving = self.view is None or self.view.header.state in (State.LIVE, State.PLAYING)
        pause = "pause" if moving else "play"
        self.panels.footer.adapt(small=self.panels.shape.kind == "small", pause_label=pause)

    # Time

    def _do(self, action: Action) -> None:
        self.feed.do(action)

    def action_toggle_pause(self) -> None:
        self._do(lambda presenter: presenter.playhead.toggle_pause())

    def action_step(self, by: int) -> None:
        self._do(lambda presenter: presenter.playhead.step(by))

    def action_faster(self, by: int) -> None:
        self._do(lambda presenter: presenter.playhead.faster(by))

    def action_home(self) -> None:
        output = self.panels.output_shown
        self._do(lambda presenter: presenter.output.home() if output else presenter.playhead.home())

    def action_to_end(self) -> None:
        output = self.panels.output_shown
        self._do(lambda presenter: presenter.output.end() if output else presenter.playhead.to_end())

    def action_widen(self, by: int) -> None:
        self._do(lambda presenter: presenter.playhead.widen(by))

    def action_pan(self, by: int) -> None:
        self._do(lambda presenter: presenter.playhead.pan(by / 2))

    def action_jump(self) -> None:
        self._prompts.jump()

    def action_mark(self, by: int) -> None:
        why = f"there is no mark {'after' if by > 0 else 'before'} this moment"
        self._do(lambda presenter: presenter.to_mark(by) or self.post_message(KeyRefused(why)))

    def on_panel_time_clicked(self, message: Panel.TimeClicked) -> None:
        self._do(lambda presenter: presenter.playhead.seek(message.t_ns))

    # The cursor of the heat map

    def action_move_cursor(self, by: int) -> None:
        self._do(lambda presenter: presenter.heat.move_cursor(by))

    def action_pan_memory(self, by: int) -> None:
        self._do(lambda presenter: presenter.heat.pan(by / 2))

    def action_zoom(self, by: int) -> None:
        self._do(lambda presenter: presenter.zoom(by))

    def action_kinds(self) -> None:
        if not self.panels.heat.display:
            self.action_panel(PANELS.index("heat") + 1)
        self._do(lambda presenter: presenter.toggle_kinds())

    def on_heat_map_pointed(self, message: HeatMap.Pointed) -> None:
        self._do(lambda presenter: presenter.point(message.row, message.t_ns))

    # Reuse distance and miss ratio

    def action_miss_ratio(self) -> None:
        self._show_reuse()
        self.panels.reuse.toggle()

    def action_memory_size(self, by: int) -> None:
        self._show_reuse()
        self.panels.reuse.move(by)

    def action_type_memory_size(self) -> None:
        self._prompts.memory_size()

    def _choose_size(self, size_bytes: int) -> str:
        self._show_reuse()
        return "" if self.panels.reuse.choose_size(size_bytes) else NO_CURVE

    def _show_reuse(self) -> None:
        if not self.panels.reuse.display:
            self.action_panel(PANELS.index("reuse") + 1)

    # Lists: ranges, processes, tensors

    def action_processes(self) -> None:
        self._list("processes")

    def action_tensors(self) -> None:
        self._list("tensors")

    def _list(self, name: str) -> None:
        """Show a list in place of the ranges; if the list is shown already, the ranges again."""
        self._show_output(False)
        listed = self.panels.listed = name if self.panels.listed != name else "table"
        self.panels.panel = PANELS.index("table")
        self._arrange()
        self._do(lambda presenter: presenter.show_list(listed))

    def _show_ranges(self) -> None:
        """Show the ranges, which a key is about to change."""
        if self.panels.listed != "table":
            self._list("table")

    def _focus_selected_row(self) -> None:
        """Focus all panels on the selected row."""
        key = self.panels.rows.selected
        if self.panels.listed == "processes":
            self.panels.table.deselect()
            self._do(lambda presenter: presenter.focus_process(key))
        elif self.panels.listed == "tensors":
            self._do(lambda presenter: presenter.point_to_tensor(key))
        else:
            self._do(lambda presenter: presenter.focus_range(key))

    def on_row_panel_selected(self, message: RowPanel.Selected) -> None:
        self._focus_selected_row()

    def action_filter(self) -> None:
        listed = self.panels.listed
        if listed != "tensors":
            self._show_ranges()
        text = ""
        if self.view is not None:
            text = self.view.tensors.filter_text if listed == "tensors" else self.view.table.filter_text
        self._prompts.filter(listed, text)

    def action_toggle_filters(self) -> None:
        self._show_ranges()
        self._do(lambda presenter: presenter.ranges.toggle_filters())

    def action_sort(self) -> None:
        if self.panels.listed == "tensors":
            self._do(lambda presenter: presenter.tensors.next_sort())
            return
        self._show_ranges()
        self._do(lambda presenter: presenter.ranges.next_sort())

    def action_reverse(self) -> None:
        if self.panels.listed == "tensors":
            self._do(lambda presenter: presenter.tensors.reverse())
            return
        self._show_ranges()
        self._do(lambda presenter: presenter.ranges.sort_by(presenter.ranges.sort))

    def on_vma_table_sort_clicked(self, message: VmaTable.SortClicked) -> None:
        self._do(lambda presenter: presenter.ranges.sort_by(message.sort))

    def action_group(self) -> None:
        if self.panels.listed != "tensors":
            self.action_tensors()
            return
        self.panels.tensors.deselect()
        self._do(lambda presenter: presenter.tensors.next_grouping())

    def action_lift(self) -> None:
        """Close the output, show all ranges again, or clear the typed filter."""
        if self.panels.output_shown:
            self._show_output(False)
        elif self.panels.listed == "tensors" and self.panels.tensors.selected is not None:
            self.panels.tensors.deselect()
            self._do(lambda presenter: presenter.heat.unpoint())
        elif self.panels.table.selected is not None:
            self.panels.table.deselect()
            self._do(lambda presenter: presenter.focus_range(None))
        elif self.panels.processes.selected is not None:
            self.panels.processes.deselect()
            self._do(lambda presenter: presenter.focus_process(None))
        else:
            self._do(set_filter(self.panels.listed, ""))
            self._do(lambda presenter: presenter.heat.unpoint())

    # Panels

    def action_panel(self, number: int) -> None:
        self._show_output(False)
        if self.panels.chosen != PANELS[number - 1]:
            self.panels.panel = number - 1
            self._arrange()

    def action_next_panel(self, by: int = 1) -> None:
        self._show_output(False)
        self.panels.panel = (PANELS.index(self.panels.chosen) + by) % len(PANELS)
        self._arrange()

    def on_panel_chosen(self, message: Panel.Chosen) -> None:
        name = self.panels.name_of(message.panel)
        if name is not None and self.panels.chosen != name:
            self.panels.panel = PANELS.index(name)
            self._arrange()

    def action_move(self, by: int) -> None:
        if self.panels.output_shown:
            self._do(lambda presenter: presenter.output.move(by))
            return
        match self.panels.chosen:
            case "reuse":
                self.action_memory_size(-by)
            case "heat":
                self.action_move_cursor(by)
            case "table":
                self.panels.rows.move(by)
                self._focus_selected_row()

    def action_page(self, by: int) -> None:
        if self.panels.output_shown:
            self._do(lambda presenter: presenter.output.page(by))
            return
        match self.panels.chosen:
            case "heat":
                self.action_pan_memory(by)
            case "table":
                self.panels.rows.page(by)
                self._focus_selected_row()

    def action_details(self) -> None:
        self.panels.details_shown = not self.panels.details_shown
        self._arrange()

    def action_output(self) -> None:
        self._show_output(not self.panels.output_shown)

    def _show_output(self, shown: bool) -> None:
        if shown != self.panels.output_shown:
            self.panels.output_shown = shown
            self._arrange()
            self._do(lambda presenter: setattr(presenter.output, "shown", shown))

    def on_output_pane_scrolled(self, message: OutputPane.Scrolled) -> None:
        self._do(lambda presenter: presenter.output.move(message.by))

    # Other screens

    def action_allocations(self) -> None:
        from memtui.tui.screens.training import TrainingScreen

        self.app.push_screen(TrainingScreen(self._do))

    def action_verdict(self) -> None:
        from memtui.tui.screens.verdict import VerdictScreen

        self.app.push_screen(VerdictScreen(self._do))

    def action_stacks(self) -> None:
        from memtui.tui.screens.stacks import StacksScreen

        self.app.push_screen(StacksScreen(self._do))

    def action_help(self) -> None:
        from memtui.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.panels.subject))

    def action_palette(self) -> None:
        from memtui.tui.screens.command_palette import PaletteScreen

        async def chosen(action: str | None) -> None:
            if action is not None:
                await self.run_action(action)

        self.app.push_screen(PaletteScreen(), chosen)

    # Typing

    def take_key(self, event: events.Key) -> bool:
        """Return whether a key belongs to what is being typed (see ``MemtuiApp.on_key``)."""
        return self.panels.prompt.take(event)

    def on_prompt_changed(self, message: Prompt.Changed) -> None:
        self._prompts.changed(message.kind, message.text)

    # The recording

    def action_put_mark(self) -> None:
        if self._is_recorded():
            self._prompts.mark()

    def action_interval(self) -> None:
        if self._is_recorded():
            self._prompts.interval()

    def action_rest(self) -> None:
        self._show_answer(self._recording.toggle_pause())

    def _send(self, request: RecordingRequest) -> None:
        self._show_answer(self._recording.send(request), request.done)

    def _is_recorded(self) -> bool:
        """Return whether the session is being recorded; show a message where it is not."""
        if not self._recording.possible:
            self._show_message(NOT_RECORDING)
        return self._recording.possible

    def _show_answer(self, request: Coroutine[None, None, str], done: str = "") -> None:
        """Wait for the recording in a worker; show why it refused, or for a moment the message ``done``."""

        async def wait() -> None:
            if why := await request:
                self._show_message(why)
            elif done:
                self._show_message(done, DONE_S, role="text")

        self.run_worker(wait(), group="order")

    def _show_message(self, message: str, seconds: float = MESSAGE_S, *, role: str = "warning") -> None:
        """Show a line in place of the keys, by default why a key did nothing, for ``seconds``."""
        if self._message_timer is not None:
            self._message_timer.stop()
        self.panels.footer.show_message(message, role)
        self._message_timer = self.set_timer(seconds, lambda: self.panels.footer.show_message(""))
