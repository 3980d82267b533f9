"""The drills' own app: tools that call the provider doubles. Loaded through EXTRA_APPS."""
