"""What every environment shares. Plain assignments; the environment is read in config.env."""

from typing import Any

from config.env import BASE_DIR, environment
from config.servers import django_database, find_servers

ENV = environment()
SERVERS = find_servers(ENV)

DEBUG = False
ALLOWED_HOSTS = list(ENV.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(ENV.csrf_trusted_origins)
PUBLIC_URL = ENV.public_url or f"http://localhost:{ENV.web_port}"

INSTALLED_APPS = [
    "config.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_celery_beat",
    "orchestrator.apps.OrchestratorConfig",
    "workflows_app.apps.WorkflowsConfig",
    "workflows_app.gallery.apps.GalleryConfig",
    "approvals_app.apps.ApprovalsConfig",
    "config.apps.WiringConfig",
    *ENV.extra_apps,
]

MIDDLEWARE = [
    "config.door.ApiDoor",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "config" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": django_database(SERVERS.database_url)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

STATIC_URL = "static/"
STATIC_ROOT = ENV.data_dir / "static"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": ENV.log_level},
    "loggers": {"django.server": {"level": "INFO"}},
}

# -- The engine: which parts it is made of, and its measures --------------------------------------
ORCHESTRATOR: dict[str, Any] = {
    "EXECUTORS": {
        "tool": "orchestrator.executors.tool.ToolExecutor",
        "agent": "orchestrator.executors.agent.AgentExecutor",
        "router": "orchestrator.executors.router.RouterExecutor",
        "sub_workflow": "orchestrator.executors.sub_workflow.SubWorkflowExecutor",
        "wait": "orchestrator.executors.wait.WaitExecutor",
        "human_gate": "approvals_app.executor.HumanGateExecutor",
    },
    "SUBSCRIBERS": {
        "run.ended": ["approvals_app.requests.on_run_ended"],
        "gate.closed": ["approvals_app.requests.on_gate_closed"],
    },
    "LEASE_SECONDS": ENV.lease_seconds,
    "RENEW_SECONDS": ENV.renew_seconds,
    "REPLAY_GATE_PERCENT": ENV.replay_gate_percent,
    "FUSE": ENV.orchestrator_fuse,
    "EFFECT_RETENTION": ENV.orchestrator_effect_retention,
    "AFTER_RESTORE": ENV.after_restore,
    "QUEUES": ENV.queues,
    "QUEUE_ROUTES": ENV.orchestrator_queue_routes,
    "HELD": ENV.orchestrator_held,
    # A signal named like a gate is a decision; the desk asks the gate without knowing it.
    "GATE_DECIDER": "approvals_app.decisions.decide_by_step",
    "MODELS": {"fast": "offline:demo", "deep": "offline:demo", **ENV.orchestrator_models},
    "PROVIDERS": ENV.orchestrator_providers,
    "OFFLINE_DEMO": "workflows_app.gallery.offline.answer",
    "FILES_ROOT": ENV.data_dir / "files",
    "HTTP_ALLOW_PRIVATE": ENV.http_allow_private,
}

# -- The gate: the console's users and their roles come from the desk ------------------------------
GATE_PERSON_ROLES = "config.people.roles_of"

# -- The API: the error shape, pagination and authentication are named here, used by both faces ----
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "workflows_app.authentication.BearerAuthentication",
        "workflows_app.authentication.StaffSessionAuthentication",
    ],
    # Deny by default: a view names the scope it needs, or is closed to everybody.
    "DEFAULT_PERMISSION_CLASSES": ["workflows_app.permissions.HasScope"],
    "DEFAULT_PARSER_CLASSES": ["config.api.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["config.api.ExactJSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "config.api.AlwaysJSON",
    "DEFAULT_PAGINATION_CLASS": "config.api.KeysetPages",
    "DEFAULT_METADATA_CLASS": None,
    "DEFAULT_SCHEMA_CLASS": "config.description.ApiSchema",
    "EXCEPTION_HANDLER": "config.problems.problem_response",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Durable workflow orchestrator",
    "DESCRIPTION": (
        "Start, watch and steer durable workflows.\n\n"
        "**To try it here:** make a token with `manage.py token create`, press *Authorize* and"
        " paste it.\n\n"
        "Errors are problem documents (RFC 9457, `application/problem+json`) with a stable"
        " `code`. Money is US dollars as JSON numbers with at most 6 decimals. Integers are exact"
        " to 64 bits: read them with a parser that keeps them."
    ),
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SCHEMA_PATH_PREFIX": "/v1",
    "POSTPROCESSING_HOOKS": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {
        "deepLinking": True,
        "persistAuthorization": True,
        "displayRequestDuration": True,
        "defaultModelsExpandDepth": 0,
        "tryItOutEnabled": True,
    },
    "TAGS": [
        {"name": "Runs", "description": "Start, look at, signal and steer runs."},
        {"name": "Services", "description": "What lies outside: how it is, and holding it."},
        {"name": "Definitions", "description": "Check, publish and read workflow documents."},
        {"name": "Approvals", "description": "What waits for a person, and deciding it."},
    ],
}
# The body of a request may have 1 MiB, a form of the console no more.
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024

# -- Celery: a carrier of wake-ups. Each line avoids a failure that was seen; see docs/adr ---------
CELERY_BROKER_URL = SERVERS.broker_url
# Only chord headers store a result; nothing reads one after an hour.
CELERY_RESULT_BACKEND = SERVERS.broker_url
CELERY_RESULT_EXPIRES = 3600
CELERY_RESULT_CHORD_EXPIRES = 3600
CELERY_TASK_IGNORE_RESULT = True
# JSON only: whoever reaches the broker must not be able to run code (CVE-2021-23727 and kin).
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = CELERY_RESULT_ACCEPT_CONTENT = ["json"]
# A stopped worker gives the wake-up back at once; a lost one is the lease's affair, with a cap.
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False
CELERY_TASK_ACKS_ON_FAILURE = CELERY_TASK_ACKS_ON_TIMEOUT = True
# Events cost a third of the throughput: on in the demo for Flower, off where speed is measured.
CELERY_TASK_SEND_SENT_EVENT = CELERY_WORKER_SEND_TASK_EVENTS = ENV.task_events
CELERY_TASK_TRACK_STARTED = False
# A frozen broker must not hold a publisher for long: the sweep publishes again.
CELERY_TASK_PUBLISH_RETRY = True
CELERY_TASK_PUBLISH_RETRY_POLICY = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 0.5,
}
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_DEFAULT_QUEUE = "engine"
CELERY_TASK_TIME_LIMIT = ENV.task_hard_limit_seconds
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_POOL_LIMIT = 10
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # No copy in the broker of what a worker has in hand: the READY row is that copy, and the sweep
    # finds it within seconds; the broker's would come back after the longest hard limit. It costs
    # two round trips a message (ADR 0042). A worker that stops still gives back what it holds.
    "ack_emulation": False,
    # Half-open connections are found; longer than the transport's BRPOP of one second.
    "socket_timeout": 3,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # A sender that finds the broker away gives up at once, not after three tries in six seconds.
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 0.5,
    # One key a queue in each BRPOP instead of four, and no queue starves another.
    "priority_steps": [0],
    "queue_order_strategy": "round_robin",
    "global_keyprefix": "wf:",
}
# A chord that cannot be counted costs a sweep's delay, so its sender gives up soon (stock: 20
# tries, and two minutes for a store that is frozen).
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {
    "global_keyprefix": "wf:",
    "retry_policy": CELERY_TASK_PUBLISH_RETRY_POLICY,
}
CELERY_REDIS_SOCKET_TIMEOUT = CELERY_REDIS_SOCKET_CONNECT_TIMEOUT = 3
CELERY_REDIS_SOCKET_KEEPALIVE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_MAX_TASKS_PER_CHILD = 1000
CELERY_WORKER_MAX_MEMORY_PER_CHILD = 400_000
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
CELERY_WORKER_ENABLE_SOFT_SHUTDOWN_ON_IDLE = False
CELERY_WORKER_ETA_TASK_LIMIT = 100
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_BEAT_SCHEDULER = "config.beat:SteadyScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 5
