"""Commands of the gate."""
