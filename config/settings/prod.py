"""Production behind a proxy that ends TLS: refuses to start on anything guessed or generated."""

from django.core.exceptions import ImproperlyConfigured

from config.settings.base import *  # noqa: F403
from config.settings.base import ENV

if ENV.secret_key is None or ENV.database_url is None or ENV.broker_url is None:
    raise ImproperlyConfigured("Production needs SECRET_KEY, DATABASE_URL and BROKER_URL.")

DEBUG = False
SECRET_KEY = ENV.secret_key.get_secret_value()
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
# A load balancer asks from inside, without TLS.
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]
SECURE_HSTS_SECONDS = 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
