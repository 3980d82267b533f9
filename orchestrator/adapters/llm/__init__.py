"""Language models behind one port; ``base`` is the port, one further file a provider."""
