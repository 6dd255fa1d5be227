"""The studio: local web pages to watch runs, look inside models and try them."""
