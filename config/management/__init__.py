"""Commands that start and supervise processes."""
