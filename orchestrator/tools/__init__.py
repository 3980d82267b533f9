"""The tools in the box, one file a kind of thing; each bounded in time and size.

Importing the package registers them, so that the search for every app's ``tools`` finds them too.
"""

from orchestrator.tools import broker, files, http, mail, sql, transform

__all__ = ["broker", "files", "http", "mail", "sql", "transform"]
