"""``memtui breakdown``: what the memory in sessions and logs is made of, as bars on standard output or as figures."""
