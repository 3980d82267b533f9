"""The test suite: real PostgreSQL and a real broker, the cheapest password hash, mail in memory."""

import os

from config.settings.base import *  # noqa: F403
from config.settings.base import LOGGING, ORCHESTRATOR

DEBUG = False
SECRET_KEY = "only-for-the-test-suite-0123456789abcdefghijklmnop"  # noqa: S105
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
# How soon a message on an empty queue is taken for lost: tests of lost messages need not wait 2 s.
ORCHESTRATOR = ORCHESTRATOR | {"STALE_SECONDS": float(os.environ.get("TEST_STALE_SECONDS", "2"))}
LOGGING = LOGGING | {"root": {"handlers": ["console"], "level": "WARNING"}}
