"""What other tools wrote about memory, as sessions: one file for each format, one registry (``detect``)."""
