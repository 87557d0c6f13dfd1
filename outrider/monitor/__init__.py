"""Running service: intake, worker, host, trainer, supervisor, metrics, page and client."""
