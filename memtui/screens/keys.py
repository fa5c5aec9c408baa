"""The keys of the memory screen: what help, palette and footer speak of."""

from __future__ import annotations

from textual.binding import Binding

from memtui.screens.arrange import PANELS

PANEL_WORDS = ("where and when", "reuse distance or miss ratio", "address ranges or processes", "power")
KEYS: tuple[Binding, ...] = (
    Binding("space", "toggle_pause", "pause or play"),
    Binding("t,right", "step(1)", "next sample"),
    Binding("T,left", "step(-1)", "previous sample"),
    Binding("shift+right", "step(10)", "ten samples on"),
    Binding("shift+left", "step(-10)", "ten samples back"),
    Binding("right_square_bracket", "faster(1)", "faster"),
    Binding("left_square_bracket", "faster(-1)", "slower"),
    Binding("home", "home", "first sample"),
    Binding("end,l", "to_end", "live, or the end"),
    Binding("plus,equals_sign", "widen(-1)", "less time, closer"),
    Binding("minus", "widen(1)", "more time"),
    Binding("j", "jump", "jump to a time"),
    Binding("p", "processes", "processes or address ranges"),
    Binding("o", "output", "output of the program"),
    Binding("a", "allocations", "allocations of training steps (memtui trace)"),
    Binding("n", "mark(1)", "next mark"),
    Binding("N", "mark(-1)", "previous mark"),
    Binding("slash", "filter", "filter by text"),
    Binding("escape", "lift", "look at everything again"),
    Binding("z", "zoom(1)", "zoom in on the cursor"),
    Binding("Z", "zoom(-1)", "zoom back"),
    Binding("shift+down", "move_cursor(1)", "cursor of the heat map down"),
    Binding("shift+up", "move_cursor(-1)", "cursor of the heat map up"),
    Binding("H", "pan(-1)", "half a picture back in time"),
    Binding("L", "pan(1)", "half a picture on in time"),
    Binding("J", "pan_memory(1)", "half a picture down in memory"),
    Binding("K", "pan_memory(-1)", "half a picture up in memory"),
    Binding("M", "put_mark", "put a mark here and now"),
    Binding("i", "interval", "interval of sampling"),
    Binding("x", "rest", "leave the target alone, or go on"),
    Binding("f", "toggle_filters", "filters on or off"),
    Binding("s", "sort", "sort by the next column"),
    Binding("S", "reverse", "reverse the order"),
    Binding("m", "miss_ratio", "miss ratio or reuse distance"),
    Binding("full_stop", "memory_size(1)", "miss ratio of more memory"),
    Binding("comma", "memory_size(-1)", "miss ratio of less memory"),
    Binding("down", "move(1)", "down in the chosen panel"),
    Binding("up", "move(-1)", "up in the chosen panel"),
    Binding("pagedown", "page(1)", "next page of ranges"),
    Binding("pageup", "page(-1)", "previous page of ranges"),
    *(Binding(str(n), f"panel({n})", PANEL_WORDS[n - 1]) for n in range(1, len(PANELS) + 1)),
    Binding("tab", "next_panel(1)", "next panel"),
    Binding("shift+tab", "next_panel(-1)", "previous panel"),
    Binding("c", "app.next_theme", "other colours: dark, light, high contrast"),
    Binding("colon,ctrl+p", "palette", "find an action by its name"),
    Binding("question_mark,f1", "help", "help"),
    Binding("d", "app.detach", "detach"),
    Binding("q", "app.quit", "quit"),
)
