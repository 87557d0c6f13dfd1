"""Signing secrets of webhooks, given or from files."""

from collections.abc import Iterator
from pathlib import Path

from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError

from outrider.errors import ConfigError

from .config import Settings
from .sections import WebhookSettings


def webhook_secret(settings: Settings, hook: WebhookSettings) -> str | None:
    """Secret of a webhook; None for messages that are not signed.

    Raises
    ------
    ConfigError
        If its file cannot be read or the secret cannot be used.
    """
    secret = hook.secret
    if secret is None and hook.secret_file is not None:
        secret = _read(settings.path(hook.secret_file))
    if secret is not None:
        try:
            Webhook(secret)
        except (ValueError, EmptyWebhookSecretError) as error:
            raise ConfigError(f"webhook {hook.url}: secret must be whsec_ and base64: {error}") from None
    return secret


def secret_problems(settings: Settings) -> Iterator[str]:
    """Reasons that secrets of webhooks cannot be used."""
    for hook in settings.webhooks:
        try:
            webhook_secret(settings, hook)
        except ConfigError as error:
            yield str(error)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"webhook secret file {path} cannot be read: {error}; docs/events.md says how to make one"
        ) from error
