"""Importers of memory logs and traces of other tools: one module for each format, one registry (``detect``)."""
