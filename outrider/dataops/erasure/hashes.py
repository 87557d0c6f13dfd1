"""Keyed hashes of erased records and subjects, which cannot be read back."""

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from outrider.dataops.state.folder_secret import folder_of
from outrider.dataops.whole_file import sync, write_whole

KEY_FILE = "key.erasures"
HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class HashKey:
    """Key of a data folder's hashes.

    Examples
    --------
    >>> key = HashKey(b"k" * 32)
    >>> key.record("churn", "a1") == key.record("churn", "a1"), key.record("churn", "a2").hex()[:8]
    (True, 'd39eaad4')
    """

    secret: bytes

    @classmethod
    def of_folder(cls, folder: Path) -> "HashKey":
        path = folder / KEY_FILE
        if not path.exists():
            cls(secrets.token_bytes(32)).keep(folder)
        return cls(bytes.fromhex(path.read_text(encoding="ascii").strip()))

    def keep(self, folder: Path) -> None:
        write_whole(folder / KEY_FILE, self.secret.hex() + "\n")
        sync(folder)

    def record(self, model: str, id_: str) -> bytes:
        return self._hash("record", model, id_)

    def subject(self, model: str | None, entity: str) -> bytes:
        return self._hash("subject", model or "", entity)

    def _hash(self, *parts: str) -> bytes:
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=HASH_BYTES, key=self.secret).digest()


def is_erased(connection: Connection, model: str, record_id: str) -> bool:
    folder = folder_of(connection)
    if not (folder / KEY_FILE).exists():
        return False
    query = "SELECT 1 FROM erased_hash WHERE hash = ? AND kind = 'record'"
    wanted = HashKey.of_folder(folder).record(model, record_id)
    return connection.exec_driver_sql(query, (wanted,)).first() is not None
