"""The demo: what it needs in the database, the story it tells, and how it looks at a terminal."""
