"""The ASGI application that uvicorn serves."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

from config.env import environment
from config.servers import shared_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.dev")

# Under ASGI a thread lives as long as one request: kept connections would die with it.
settings.DATABASES["default"].update(
    shared_connections(settings.DATABASES["default"], most=environment().database_pool)
)

application = get_asgi_application()
