"""Pure decisions: no database, many generated cases."""
