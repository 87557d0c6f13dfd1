"""Signing secrets of webhooks and alerts, from the configuration or files."""

from collections.abc import Iterator
from pathlib import Path

from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError

from outrider.errors import ConfigError

from .config import Settings
from .sections import WebhookSettings


def webhook_secret(settings: Settings, hook: WebhookSettings) -> str | None:
    """Signing secret of a webhook, None for unsigned messages; raises ConfigError if it cannot be read
    or used."""
    return _secret(settings, hook.secret, hook.secret_file, f"webhook {hook.url}")


def alert_secret(settings: Settings) -> str | None:
    """Secret that posted alerts are signed with, None if they need no signature; raises ConfigError if
    it cannot be read or used."""
    return _secret(settings, settings.alerts.secret, settings.alerts.secret_file, "alerts")


def secret_problems(settings: Settings) -> Iterator[str]:
    """Error messages of unusable secrets of webhooks and alerts."""
    for hook in settings.webhooks:
        try:
            webhook_secret(settings, hook)
        except ConfigError as error:
            yield str(error)
    try:
        alert_secret(settings)
    except ConfigError as error:
        yield str(error)


def _secret(settings: Settings, secret: str | None, file: str | None, owner: str) -> str | None:
    if secret is None and file is not None:
        secret = _read(settings.path(file))
    if secret is not None:
        try:
            Webhook(secret)
        except (ValueError, EmptyWebhookSecretError) as error:
            raise ConfigError(f"{owner}: secret must be whsec_ and base64: {error}") from None
    return secret


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"webhook secret file {path} cannot be read: {error}; docs/events.md says how to make one"
        ) from error
