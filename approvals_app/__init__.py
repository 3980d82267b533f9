"""The gate: who must say yes, by when, and what they said."""
