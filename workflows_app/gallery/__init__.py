"""Ready-made workflows and the demo services that they call."""
