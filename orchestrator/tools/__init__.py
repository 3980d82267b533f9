"""The tools in the box, one file a kind of thing; each bounded in time and size.

Importing the package registers them, so that the search for every app's ``tools`` finds them too.
"""

from orchestrator.tools import files, http, mail, sql, transform

__all__ = ["files", "http", "mail", "sql", "transform"]
