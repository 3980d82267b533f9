"""The figures of the product as ratios, in one run, against plain Celery on the same machine.

A Django app of its own (``EXTRA_APPS=bench``), so that workers know its no-op tool.
"""
