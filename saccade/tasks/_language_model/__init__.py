"""Text generation of the language model task."""
