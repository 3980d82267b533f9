"""Drills: real processes are hurt on purpose, and facts from outside say whether promises held."""
