"""The test suite: real PostgreSQL and a real broker, the cheapest password hash, mail in memory."""

from config.settings.base import *  # noqa: F403
from config.settings.base import LOGGING

DEBUG = False
SECRET_KEY = "only-for-the-test-suite-0123456789abcdefghijklmnop"  # noqa: S105
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
LOGGING = LOGGING | {"root": {"handlers": ["console"], "level": "WARNING"}}
