"""Keys and sessions for tests, over a migrated database."""

from pathlib import Path

from outrider.dataops.access.store import digest_of
from outrider.monitor.http.auth import COOKIE
from outrider.monitor.http.keyring import Keyring, csrf_token

from .databases import place_database


def keyring_in(folder: Path) -> Keyring:
    """Keyring of a data folder, which is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    place_database(folder / "state.db")
    return Keyring.of_folder(folder)


def owner_key(folder: Path) -> str:
    """The owner's key of a data folder."""
    return (folder / "key").read_text().strip()


def link_of(keyring: Keyring, key: str) -> str:
    """Token of a one-time link for a key."""
    made = keyring.store.make_link(digest_of(key), now_us=keyring.now_us())
    assert made is not None
    return made[0]


def logged_in(keyring: Keyring, key: str, *, agent: str = "a test") -> dict[str, str]:
    """Headers of a browser with a new session of a key."""
    holder = keyring.by_key(key)
    assert holder is not None
    session = keyring.open_session(holder, address="127.0.0.1", agent=agent)
    return {"cookie": f"{COOKIE}={session}", "x-csrf-token": csrf_token(session)}
