"""Tokens of jobs that are trained outside.

A keyed hash of the job's id, so that a late webhook can repeat a token that is stored nowhere but as SHA-256.
"""

import base64
import hmac
import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert as insert_new

from outrider.dataops.state.folder_secret import secret_beside
from outrider.dataops.state.improvement_tables import JobToken
from outrider.dataops.state.tables import table_of

PREFIX = "orj_"
_TOKEN = table_of(JobToken)


def issue(connection: Connection, *, job: str, model: str, now_us: int, until_us: int) -> None:
    """Valid until the job's deadline."""
    digest = sha256(token_of(connection, job).encode()).hexdigest()
    row = {"digest": digest, "job": job, "model": model, "created_us": now_us, "until_us": until_us}
    connection.execute(insert_new(_TOKEN).values(row).on_conflict_do_update(["digest"], set_=row))


def token_of(connection: Connection, job: str) -> str:
    mac = hmac.new(secret_beside(connection), b"job token\0" + job.encode(), sha256).digest()
    return PREFIX + base64.urlsafe_b64encode(mac).decode().rstrip("=")


def with_token(connection: Connection, payload: str) -> str:
    event: dict[str, Any] = json.loads(payload)
    data = event.get("data", {})
    if not isinstance(data, dict) or "task" not in data:
        return payload
    data["token"] = token_of(connection, str(data["job"]))
    return json.dumps(event, sort_keys=True)


def time_of(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
