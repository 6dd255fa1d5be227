"""Pages: the frame of every page and the data it starts with; a page and its .json twin have the same content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from starlette.responses import Response

from saccade.core.serialize import dump_json

HERE = Path(__file__).parent
STATIC = HERE / "static"
NAVIGATION = {
    "runs": "Runs",
    "look": "Look",
    "compare": "Compare",
    "generate": "Generate",
    "try": "Try",
    "samples": "Samples",
    "replay": "Replay",
    "lessons": "Lessons",
}


@dataclass(frozen=True)
class Page:
    """A page: its name in the navigation, its title, its HTML file and the data it starts with."""

    name: str
    title: str
    data: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    """name of its HTML file; by default that of the page"""

    def html(self) -> str:
        links = "".join(
            f'<a href="/{name}"{" aria-current=page" if name == self._tab else ""}>{label}</a>'
            for name, label in NAVIGATION.items()
        )
        return Template((HERE / "frame.html").read_text(encoding="utf-8")).substitute(
            title=escape_text(self.title),
            links=links,
            body=(HERE / f"{self.body or self.name}.html").read_text(encoding="utf-8"),
            styles=self._styles,
            script=f"/static/{self.name}.js",
            data=embed_json(self.data),
        )

    @property
    def _styles(self) -> str:
        """The link to the style sheet of this page alone, where it has one."""
        sheet = STATIC / f"{self.name}.css"
        return f'<link rel="stylesheet" href="/static/{sheet.name}">' if sheet.exists() else ""

    @property
    def _tab(self) -> str:
        tabs = {"watch": "runs", "train": "runs", "steps": "look", "flow": "look", "heads": "look"}
        return tabs.get(self.name, self.name)


class JsonResponse(Response):
    """A value as strict JSON, whatever texts and numbers are in it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump_json(content).encode()


def escape_text(text: str) -> str:
    """Escape a text, whatever is in it."""
    return escape(re.sub("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]", "\ufffd", text))


def embed_json(data: dict[str, Any]) -> str:
    """Return JSON that no text in it can end: without '<' it cannot leave its script element."""
    return dump_json(data).replace("<", "\\u003c")
