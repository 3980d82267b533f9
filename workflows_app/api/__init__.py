"""The desk over HTTP: each view reads a body, calls one use case and shapes the answer."""
