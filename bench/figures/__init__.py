"""One module a figure, each with ``measure(stage)``."""
