"""Looking after an installation: reading only."""
