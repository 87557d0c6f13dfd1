"""The web page: server-rendered, readable without JavaScript, refreshed by htmx fragments."""
