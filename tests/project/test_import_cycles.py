"""No module imports, by way of others, itself: each can be read after those it needs."""

from __future__ import annotations

import grimp


def test_no_circle_between_files():
    graph = grimp.build_graph("memtui", cache_dir=None)
    needed = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while ready := {module for module, imports in needed.items() if not imports}:
        needed = {module: imports - ready for module, imports in needed.items() if module not in ready}
    inside = {module: imports for module, imports in needed.items() if _reaches_itself(module, needed)}
    assert not inside, "these import each other"


def _reaches_itself(module: str, needed: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    to_visit = set(needed[module])
    while to_visit:
        seen |= to_visit
        to_visit = {after for each in to_visit for after in needed[each]} - seen
    return module in seen
