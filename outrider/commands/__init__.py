"""One module per command of ``outrider``; the command line imports the one that was asked for."""
