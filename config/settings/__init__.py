"""Django settings by environment: dev (default), test, prod; base holds what they share."""
