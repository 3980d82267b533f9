"""Command line of the desk."""
