"""Tables of the desk."""
