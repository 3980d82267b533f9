"""The Django app of the gallery."""

from django.apps import AppConfig


class GalleryConfig(AppConfig):
    """Ready-made workflows as documents, with tools that behave like real services."""

    name = "workflows_app.gallery"
    label = "gallery"
    verbose_name = "Gallery"
