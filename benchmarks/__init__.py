"""What memtui costs, measured against the limits it promises: ``python -m benchmarks`` prints a table. Never a test."""
