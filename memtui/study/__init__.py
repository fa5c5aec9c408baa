"""``memtui study``: published experiments, repeated on this machine.

Two halves that share ``plan``: one starts programs and observes them (``runs``), the other reads the sessions and draws
conclusions (``recorded_run``, ``studies``, ``charts``, ``page``). ``command`` runs both.
"""
