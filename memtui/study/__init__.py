"""``memtui study``: experiments that were published on other machines, done on this one.

Two halves that share ``plan``: one starts programs and observes them (``worker``, ``lead``, ``runner``), the other
reads the sessions and draws conclusions (``trace``, ``studies``, ``draw``, ``page``). ``command`` holds them together.
"""
