"""The placement that costs least under a limit of fast memory, and what it is held against."""
