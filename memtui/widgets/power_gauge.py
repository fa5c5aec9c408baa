"""The power of the devices: a block for each, with the number of processes on it; for a missing source the reason."""

from __future__ import annotations

from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import DevicePower, PowerView

NAME = 7


class PowerGauge(Panel):
    """Blocks of up to four lines (now, average and peak, energy and limit, note); of one line where room is short.

    Counters of a GPU follow where there is room.
    """

    view: PowerView
    title = "power"

    def heading_right(self, width: int) -> Line:
        measured = [d for d in self.view.devices if d.now_w is not None and d.added]
        if len(measured) < 2:
            return []
        return [(text.power(sum(d.now_w or 0.0 for d in measured)), self.draw_style["bright"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        devices = self.view.devices
        if not devices:
            return self.message(self.view.note or "no reading yet", width, height)
        present = [d for d in devices if not d.reason]
        absent = [d for d in devices if d.reason]
        # Reasons are long: they share the rows that the devices with readings leave.
        notes = any(d.note for d in present)
        ways = ((4, 1), (4, 0)) * notes + ((3, 1), (3, 0), (2, 0), (1, 0))  # lines of a block, and between blocks
        block_rows, gap_rows = next(
            ((n, gap) for n, gap in ways if len(present) * (n + gap) - gap + len(absent) <= height), (1, 0)
        )
        counter_rows = 0
        if present and (block_rows, gap_rows) == ways[0]:
            # A reason stays the same: beside counters it has one row, and the rest of it is in `memtui doctor`.
            counter_rows = (height - len(present) * (block_rows + gap_rows) + gap_rows - len(absent)) // len(present)
        lines: list[Line] = []
        for number, device in enumerate(present):
            if gap_rows and number:
                lines.append([])
            lines += self._block(device, width, block_rows)
            lines += [self._note(line, width) for line in device.counters[: max(0, counter_rows)]]
        for number, device in enumerate(absent):
            room = (height - len(lines)) // (len(absent) - number)
            lines += self._absent(device, width, max(1, room))
        return lines

    def _block(self, device: DevicePower, width: int, rows: int) -> list[Line]:
        draw_style = self.draw_style
        watts = text.power_column(device.now_w)
        bar = max(0, width - NAME - len(watts) - 3)
        fraction = (device.now_w or 0.0) / (device.limit_w or device.peak_w or 1.0)
        level = 2 + min(6, round(fraction * 6))
        lines: list[Line] = [
            [
                (" " + text.fit(text.clean(device.name), NAME), draw_style["text"]),
                (raster.gauge(fraction, bar, ascii_only=draw_style.ascii_only), draw_style.heat[level]),
                (watts, draw_style["bright"]),
            ]
        ]
        note = self._note(text.clean(device.note), width)
        if rows in (2, 3) and device.note and device.now_w is None:  # the reason matters more than old figures
            lines.append(note)
        elif rows >= 2:
            mean, peak = text.short_power(device.mean_w), text.short_power(device.peak_w)
            lines.append([(" " * (NAME + 1) + f"avg {mean:>4} peak {peak:>4}", draw_style["dim"])])
        if rows >= 3:
            line_text = text.energy_column(device.energy_j)
            if device.limit_w is not None:
                line_text += f" · limit {text.short_power(device.limit_w)}"
            lines.append([(" " * (NAME + 1) + line_text, draw_style["dim"])])
        if rows >= 4 and device.note:
            lines.append(note)
        return lines

    def _note(self, line_text: str, width: int) -> Line:
        """Return a line below the name, further left where it is long."""
        indent = max(1, min(NAME + 1, width - 1 - text.width(line_text)))
        return [(" " * indent + text.fit(line_text, max(0, width - 1 - indent)), self.draw_style["dim"])]

    def _absent(self, device: DevicePower, width: int, most_rows: int) -> list[Line]:
        draw_style = self.draw_style
        name = " " + text.fit(text.clean(device.name), NAME)
        rows: list[str] = []
        room = width - len(name) - 1
        for word in ("n/a: " + text.clean(device.reason)).split():
            while len(word) > room > 0:  # the name of a library, which is most specific at its end
                rows.append(word[:room])
                word = word[room:]
            if rows and text.width(rows[-1]) + 1 + text.width(word) <= room:
                rows[-1] += " " + word
            else:
                rows.append(word)
        if len(rows) > most_rows:
            rows = [*rows[: most_rows - 1], text.sentence(" ".join(rows[most_rows - 1 :]), room)]
        return [
            [(name if n == 0 else " " * len(name), draw_style["text"]), (text.fit(row, room), draw_style["dim"])]
            for n, row in enumerate(rows)
        ]
