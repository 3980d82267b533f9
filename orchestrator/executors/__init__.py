"""Step types: one file each; inputs and context in, an outcome out. Strangers to one another."""
