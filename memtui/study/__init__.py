"""``memtui study``: experiments that were published on other machines, done on this one.

Two halves that share ``plan``: one starts programs and observes them (``runs``), the other reads the sessions and draws
conclusions (``recorded_run``, ``studies``, ``charts``, ``page``). ``command`` holds them together.
"""
