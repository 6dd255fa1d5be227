"""Serve: loaded models over HTTP, in the form of OpenAI's API and as typed tasks."""
