"""A developer's machine and the demo: a generated key, debug pages unless DEBUG=0."""

from config.env import generated_secret
from config.settings.base import *  # noqa: F403
from config.settings.base import ENV

DEBUG = True if ENV.debug is None else ENV.debug
SECRET_KEY = (
    ENV.secret_key.get_secret_value()
    if ENV.secret_key
    else generated_secret(ENV.data_dir / "secret_key")
)
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
