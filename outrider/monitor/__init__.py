"""What runs now: intake, worker, assertion host, trainer, supervisor, metrics, web page and the client."""
