"""Commands of the engine; thin: parse arguments, call, print."""
