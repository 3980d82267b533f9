"""The ASGI application that uvicorn serves."""

import os

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from config.env import environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.dev")
_wsgi, _asgi = get_wsgi_application(), get_asgi_application()

from config.bridge import Bridge  # noqa: E402 - it needs the apps, which are loaded now

application = Bridge(_wsgi, _asgi, threads=environment().web_threads)
