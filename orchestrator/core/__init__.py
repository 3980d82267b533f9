"""Pure decisions over values: no Django, Celery, clock, I/O or randomness lives here."""
