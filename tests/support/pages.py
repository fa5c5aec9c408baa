"""Pages as a browser would read them, and names that were made to harm."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.readings import Power, PowerReading
from memtui.core.samples import End, Event, Process, ProcessWindow, Vma, VmaTable, Window
from tests.support import sessions
from tests.support.sessions import HEAP, MS

EVIL = "</script></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>"


VOID = {"meta", "br", "img", "link", "input", "hr"}


URLS = {"src", "href", "xlink:href", "action", "formaction", "data", "poster", "srcset", "background"}


class Page(HTMLParser):
    """Elements, attributes and text of a page; unbalanced elements are an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open:
            self.inside.setdefault(self._open[-1], []).append(data)
        self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def evil_stream():
    hello = sessions.hello(tracker=EVIL, flush=EVIL)
    host = replace(hello.host, hostname=EVIL, kernel=EVIL)
    yield replace(hello, target=replace(hello.target, command=EVIL, user=EVIL), host=host, memtui_version=EVIL)
    yield Process(1, 4242, 1, 777, 0, EVIL, EVIL)
    vmas = (Vma(HEAP, HEAP + (1 << 20), "<b>p", f"/tmp/{EVIL}"), Vma(HEAP << 1, (HEAP << 1) + 8192, "rw-p", EVIL))
    yield VmaTable(1, 0, vmas)
    yield Power((PowerReading(0, EVIL, EVIL, EVIL, name=EVIL, status=EVIL, reason=EVIL),))
    for sample in range(5):
        at = sample * 200 * MS
        pages = PageSet.from_pages((HEAP >> 12) + np.arange(64))
        part = ProcessWindow(1, at, at + 200 * MS, pages=pages, status="approximate", reason=EVIL, flush=EVIL)
        yield Window(sample, at, at + 200 * MS, 200 * MS, 0, (part,), disturbed=EVIL)
    for kind in ("mark", "gap", "warning", EVIL):
        yield Event(2, kind, EVIL)
    yield End(5 * 200 * MS, EVIL, EVIL)
