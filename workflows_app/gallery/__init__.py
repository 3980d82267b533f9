"""Ready-made workflows and the demo services that they call.

A small app of its own: nothing outside it depends on it, and it can be left out of the settings.
"""

from workflows_app.gallery.catalogue import files, sample_input

__all__ = ["files", "sample_input"]
