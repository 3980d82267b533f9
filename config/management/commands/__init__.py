"""Thin commands: parse arguments, call config, print."""
