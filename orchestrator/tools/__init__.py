"""The tools in the box, one file a kind of thing; each bounded in time and size."""
