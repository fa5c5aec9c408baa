"""Programs that nobody here wrote for memtui, watched with the default options."""
