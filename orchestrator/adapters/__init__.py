"""The outside world behind small ports: bounded in time and size, errors in our own words.

Knows no run, no row of the engine and no step type.
"""
