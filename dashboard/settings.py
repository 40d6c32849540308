"""Django's settings: machine-specific values come from the environment; bad values stop the start."""

import os
import re
import sys
from datetime import timedelta
from pathlib import Path

import dj_database_url

from dashboard import config
from dashboard.runtime.environment import SecretError, sandbox_environment, with_secrets
from dashboard.runtime.logs import FORMATS

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("FENCELINE_DATA") or ROOT / ".data").resolve()
try:
    ENVIRONMENT = sandbox_environment(DATA, with_secrets(os.environ))
except SecretError as error:
    sys.exit(f"fenceline: {error}")


def _flag(name: str) -> bool:
    value = ENVIRONMENT.get(name, "").lower()
    if value in ("", "0", "false", "no"):
        return False
    if value in ("1", "true", "yes"):
        return True
    sys.exit(f"fenceline: {name}={value!r} is neither 1 nor 0.")


def _number(name: str, default: int, least: int, most: int) -> int:
    value = ENVIRONMENT.get(name, "") or str(default)
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
        sys.exit(f"fenceline: {name}={value}: give a number from {least} to {most}.")
    return int(value)


def _base_path() -> str:
    value = ENVIRONMENT.get("FENCELINE_BASE_PATH", "").rstrip("/")
    if value and not re.fullmatch(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+", value):
        sys.exit(f"fenceline: FENCELINE_BASE_PATH={value}: give a path such as /fenceline.")
    return value


def _otlp_endpoint() -> str:
    value = ENVIRONMENT.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "")
    if value and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
        sys.exit(
            f"fenceline: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT={value}: give the address that takes OTLP by "
            "HTTP, such as http://collector:4318/v1/metrics."
        )
    return value


def _log_format() -> str:
    value = ENVIRONMENT.get("LOG_FORMAT", "") or FORMATS[0]
    if value not in FORMATS:
        sys.exit(f"fenceline: LOG_FORMAT={value}: give {' or '.join(FORMATS)}.")
    return value


def _fenceline() -> config.Config:
    try:
        return config.load_config(config.environment_path(ENVIRONMENT), ENVIRONMENT)
    except config.ConfigError as error:
        sys.exit(f"fenceline: {error}")


def _secret_key() -> str:
    key = ENVIRONMENT.get("SECRET_KEY", "")
    if not key:
        sys.exit(
            "fenceline: SECRET_KEY is not set. `make up` makes one; elsewhere set 50 random characters, or "
            "SECRET_KEY_FILE to a file that holds them."
        )
    return key


def _database() -> dj_database_url.DBConfig:
    url = ENVIRONMENT.get("DATABASE_URL") or f"sqlite:///{DATA / 'fenceline.db'}"
    try:
        parsed = dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True)
    except ValueError as error:
        sys.exit(f"fenceline: DATABASE_URL cannot be used: {error}")
    if parsed.get("ENGINE") == "django.db.backends.sqlite3":
        parsed["OPTIONS"] = _SQLITE_OPTIONS
    elif not parsed.get("PASSWORD"):
        # A separate secret, so that it need not be in a URL.
        parsed["PASSWORD"] = ENVIRONMENT.get("POSTGRES_PASSWORD", "")
    return parsed


# With WAL, pages can read while a collector writes. IMMEDIATE takes the write lock at the start, when waiting
# for it works; a deferred transaction that needs it later fails instead of waiting.
_SQLITE_OPTIONS = {
    "timeout": 20,
    "transaction_mode": "IMMEDIATE",
    "init_command": (
        # Only a new database gets this page size. With 4 kB, small transactions write half as much, and a
        # cold start takes 5 % longer.
        "PRAGMA page_size=8192;PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA busy_timeout=20000;"
        # Ids come in any order: a larger cache avoids reading recently written pages again, and copying them
        # from the log into the database each 4 MB.
        "PRAGMA foreign_keys=ON;PRAGMA cache_size=-32768;PRAGMA wal_autocheckpoint=4000;"
        "PRAGMA temp_store=MEMORY;"
    ),
}

FENCELINE = _fenceline()
#: Number of workers that share the partitions of an internal topic.
SHARDS = _number("SHARDS", 1, 1, 50)
#: Threads of a process that share the turns of its pollers, for any number of clusters.
POLLER_THREADS = _number("POLLER_THREADS", 20, 5, 200)

#: Per user or token, in one web process; 0 for no limit.
API_REQUESTS_PER_MINUTE = _number("API_REQUESTS_PER_MINUTE", 3_000, 0, 1_000_000)

#: The OTLP endpoint for metrics, "" for none. The exporter reads its other variables itself.
OTLP_ENDPOINT = _otlp_endpoint()

#: No user may act on Kafka: buttons and endpoints report it.
READ_ONLY = _flag("READ_ONLY")

#: The page of the demo's webhook receiver in the sandbox of `make up`; "" elsewhere.
DEMO_RECEIVER = ENVIRONMENT.get("FENCELINE_DEMO_RECEIVER", "")
#: The instant until which the demo's Spark may be starting, in epoch milliseconds; 0 without the demo.
DEMO_SPARK_UNTIL_MS = int(ENVIRONMENT.get("FENCELINE_DEMO_SPARK_UNTIL_MS") or 0)

#: Fenceline's path on its host; "" for the root. `dashboard.web.server.serving` serves it.
BASE_PATH = _base_path()
FORCE_SCRIPT_NAME = BASE_PATH or None
SECRET_KEY = _secret_key()
DEBUG = False
ALLOWED_HOSTS = ENVIRONMENT.get("ALLOWED_HOSTS", "127.0.0.1,localhost").split(",")
CSRF_TRUSTED_ORIGINS = [origin for origin in ENVIRONMENT.get("CSRF_TRUSTED_ORIGINS", "").split(",") if origin]
FORWARDED_ALLOW_IPS = ENVIRONMENT.get("FORWARDED_ALLOW_IPS", "")
SECURE_COOKIES = _flag("SECURE_COOKIES")
#: Whether a client that connects from this machine may be a proxy. Signing in through one needs one of these:
#: the browser's host or origin differs from Fenceline's.
IS_BEHIND_PROXY = bool(
    {*ALLOWED_HOSTS} - {"127.0.0.1", "localhost", "[::1]"}
    or CSRF_TRUSTED_ORIGINS
    or FORWARDED_ALLOW_IPS
    or SECURE_COOKIES
)
DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = ENVIRONMENT.get("REDIS_URL", "redis://127.0.0.1:6379/0")

INSTALLED_APPS = [
    # Before our application, because it counts failed sign-ins before we log them.
    "axes",
    # Before Django's applications, because its createsuperuser replaces Django's.
    "dashboard",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "ninja",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "dashboard.web.server.middleware.browser_policies",
    "dashboard.web.server.middleware.no_store",
    "dashboard.web.server.middleware.known_hosts",
    "dashboard.web.server.middleware.short_parameters",
    "dashboard.web.server.middleware.api_problems",
    "dashboard.web.server.middleware.streamed_files",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Below it: WhiteNoise serves fonts, which are compressed already.
    "django.middleware.gzip.GZipMiddleware",
    "dashboard.web.server.middleware.DatabaseGone",
    "dashboard.system.origin.note_request",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "dashboard.web.server.middleware.Callers",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "dashboard.urls"
ASGI_APPLICATION = "dashboard.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "dashboard.web.server.dense_tables.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.web.page_context.chrome_context",
            ],
            "builtins": [
                "django.templatetags.static",
                *(
                    f"dashboard.web.templatetags.{name}"
                    for name in ("components", "fenceline", "status_labels")
                ),
            ],
        },
    }
]
# Limits of a request's body, and of a listener's post: `dashboard.asgi` refuses more. So Django never writes
# a body to a file, which it does beyond the second.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2**20
FILE_UPLOAD_MAX_MEMORY_SIZE = 8 * 2**20
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]
LOGIN_URL = LOGOUT_REDIRECT_URL = "login"
LOGIN_REDIRECT_URL = "overview"
_VALIDATION = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATION}.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": f"{_VALIDATION}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATION}.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "dashboard.system.sign_in.backend.UserBackend",
]
# Wrong passwords of one name from one address, and of all names from one address, that lock the sign-in
# (`dashboard.system.sign_in.limits`).
AXES_FAILURE_LIMIT, SIGN_IN_FAILURES_OF_ADDRESS = 5, 50
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address"]
AXES_HANDLER = "dashboard.system.sign_in.limits.AttemptHandler"
AXES_CLIENT_IP_CALLABLE = "dashboard.system.sign_in.limits.axes_address"
AXES_LOCKOUT_CALLABLE = "dashboard.web.pages.access.sign_in.locked_out"
AXES_RESET_ON_SUCCESS = True
# Further guesses do not prolong a lock.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
# `dashboard.system.sign_in.limits` writes these records instead, without unknown names.
AXES_DISABLE_ACCESS_LOG, AXES_VERBOSE, AXES_ENABLE_ADMIN = True, False, False
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_COOKIES
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{BASE_PATH}/"

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
STATIC_URL = f"{BASE_PATH}/static/"
# One machine serves its own checkout, so no collectstatic step is needed between a clone and a page.
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 3600
# The names of these files contain their versions.
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/vendor/"

# Behind TLS, with SECURE_COOKIES, browsers return only by https. Django sends it on https requests.
SECURE_HSTS_SECONDS = 31_536_000 if SECURE_COOKIES else 0
#: Browser features that pages do not use.
PERMISSIONS_POLICY = ", ".join(
    f"{name}=()"
    for name in (
        "accelerometer", "autoplay", "camera", "display-capture", "geolocation", "gyroscope", "hid",
        "magnetometer", "microphone", "midi", "payment", "publickey-credentials-get", "serial", "usb",
        "xr-spatial-tracking",
    )
)  # fmt: skip
# Named and shaped like Django 6.0's SECURE_CSP, so that the upgrade deletes our middleware.
SECURE_CSP = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "img-src": ["'self'", "data:", "blob:"],
    "connect-src": ["'self'"],
    "font-src": ["'self'"],
    "form-action": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
}

# The core RedisChannelLayer breaks with redis-py 8: its socket timeout equals its blocking wait.
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL]},
    }
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": "dashboard.runtime.logs.TextFormatter"},
        "json": {"()": "dashboard.runtime.logs.JsonFormatter"},
    },
    "handlers": {
        "console": {"class": "dashboard.runtime.logs.OncePerMinute", "formatter": _log_format()},
        "celery": {
            "class": "dashboard.runtime.logs.OncePerMinute",
            "formatter": _log_format(),
            "first_line": True,
        },
    },
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django.server": {"handlers": ["console"], "level": "WARNING", "propagate": False},
        # Replaces uvicorn's own handlers, which have neither format.
        "uvicorn": {"handlers": ["console"], "propagate": False},
        "uvicorn.access": {"level": "WARNING"},
        # One line for each of its retries; dashboard.system.metrics_export has a line for the failed export.
        "opentelemetry": {"level": "CRITICAL"},
        # It logs a line for each request.
        "mcp": {"level": "WARNING"},
        # It also raises its important errors; the other lines are a flood, and at DEBUG contain passwords.
        "kafka": {"level": "CRITICAL"},
        # dashboard.system.sign_in.limits has a line for every failed sign-in.
        "axes": {"level": "ERROR"},
        # A message's row has the redacted result; its own lines repeat addresses with their tokens.
        "apprise": {"level": "CRITICAL"},
        "celery": {"handlers": ["celery"], "propagate": False},
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "celery.worker.consumer.consumer": {"level": "WARNING"},
        # A late first slice expires on purpose.
        "celery.worker.request": {"level": "WARNING"},
    },
}
