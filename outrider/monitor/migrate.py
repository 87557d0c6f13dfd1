"""``python -m outrider.monitor.migrate --config PATH``: brings ``state.db`` to the newest schema."""

import argparse
from pathlib import Path

from .settings.config import Settings, find_config, load_settings


def migrate(settings: Settings) -> bool:
    """Create or upgrade a configuration's database; True if anything changed."""
    from outrider.dataops.state import migrations

    if migrations.is_current(settings.database_url):
        return False
    from outrider.dataops.state.database import open_database

    settings.data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = open_database(settings.database_url)
    try:
        migrations.upgrade(engine)
    finally:
        engine.dispose()
    return True


def main(arguments: list[str] | None = None) -> None:
    """Entry of the process."""
    from outrider.dataops.access.private_files import keep_files_private

    keep_files_private()
    parser = argparse.ArgumentParser(prog="outrider.monitor.migrate", description=__doc__)
    parser.add_argument("--config", type=Path)
    migrate(load_settings(find_config(parser.parse_args(arguments).config)))


if __name__ == "__main__":
    main()
