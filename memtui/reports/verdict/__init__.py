"""What a session says about a program's memory, and what to do: findings, each by one rule in a file of its own.

A rule is a pure function of ``Recent``, the last ten minutes before a moment. ``docs/guide/verdicts.md`` lists them.
"""
