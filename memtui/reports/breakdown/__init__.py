"""``memtui breakdown``: the parts of the memory in sessions and logs, as bars on standard output or as figures."""
