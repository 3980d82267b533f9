"""The desk: what a workflow is called, which version is live, who may start and see it."""
