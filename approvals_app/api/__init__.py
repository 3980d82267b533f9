"""The gate's API under /v1/approvals. Authentication and the error shape come from the settings."""
