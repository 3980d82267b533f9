"""The engine: how a run runs.

Knows no account, browser or REST framework. Other apps import only ``orchestrator.engine`` (the
face), ``authoring``, ``executors.base``, ``core``, and read ``models``.
"""
