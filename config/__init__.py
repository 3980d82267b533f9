"""Wires the product together: settings, routes, the Celery app, the stack. Holds no domain rule."""
