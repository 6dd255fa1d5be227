"""A figure as a vector PDF: the drawing commands of its SVG, in the light colours."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from saccade.look.pdf_file import PdfFile, number, stream_of
from saccade.look.pdf_text import PdfText

POINT = 0.75  # points of a pixel
CIRCLE = 0.5523  # of the radius: where the control points of a quarter of a circle are
XML = "{http://www.w3.org/2000/svg}"
INHERITED = ("fill", "stroke", "font-size", "font-weight", "text-anchor")
NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
Style = Mapping[str, str]


def pdf(svg: str) -> bytes:
    """Return an SVG of this package as a PDF with one page."""
    root = ElementTree.fromstring(svg)
    return _Drawing(root).file(root)


@dataclass
class _Drawing:
    """The content of the page."""

    root: ElementTree.Element
    target: PdfFile = field(default_factory=PdfFile)

    def __post_init__(self) -> None:
        self.texts, self.lines = PdfText(self.target), list[str]()
        sheet = "".join(node.text or "" for node in self.root.iter(f"{XML}style"))
        light = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet)
        rules = re.findall(r"([^{}]+)\{([^{}]*)\}", light)
        self.rules = {name.strip(): _declarations(body) for name, body in rules}
        self.defined = {node.get("id", ""): node for node in self.root.iter() if node.get("id")}
        self.ink = self.rules.get("svg", {}).get("color", "#000")

    def file(self, root: ElementTree.Element) -> bytes:
        width, height = float(root.get("width", "0")), float(root.get("height", "0"))
        self.lines.append(f"{POINT} 0 0 -{POINT} 0 {number(POINT * height)} cm")
        font = re.match(r"[\d.]+", self.rules.get("svg", {}).get("font", ""))
        self._children(root, {"font-size": font[0] if font else "13"})
        title = root.findtext(f"{XML}title") or ""
        return self.target.finish("\n".join(self.lines), (POINT * width, POINT * height), self.texts.finish(), title)

    def _children(self, parent: ElementTree.Element, style: Style) -> None:
        for node in parent:
            kind = str(node.tag).removeprefix(XML)
            if kind in ("title", "desc", "style", "defs"):
                continue
            if kind == "use":
                node = self.defined[node.get("href", "").removeprefix("#")]
                kind = "image"
            own = self._style(kind, node, style)
            self.lines.append("q")
            self._transform(node.get("transform", ""))
            getattr(self, f"_{kind}")(node, own)
            self.lines.append("Q")

    def _style(self, kind: str, node: ElementTree.Element, style: Style) -> dict[str, str]:
        """Return attributes and rules of an element, over what it inherits."""
        own = {name: style[name] for name in INHERITED if name in style} | dict(node.attrib)
        for name in (kind, *(f".{name}" for name in node.get("class", "").split())):
            own |= self.rules.get(name, {})
        return own | _declarations(node.get("style", ""))

    def _transform(self, text: str) -> None:
        for name, values in re.findall(r"(\w+)\(([^)]*)\)", text):
            parts = [float(value) for value in NUMBER.findall(values)]
            if name == "translate":
                self.lines.append(f"1 0 0 1 {number(parts[0])} {number(parts[1])} cm")
            elif name == "rotate":
                cos, sin = math.cos(math.radians(parts[0])), math.sin(math.radians(parts[0]))
                self.lines.append(f"{number(cos)} {number(sin)} {number(-sin)} {number(cos)} 0 0 cm")

    def _paint(self, path: str, style: Style) -> None:
        """Fill and stroke a path."""
        fill, stroke = (self._colour(style.get(name, default)) for name, default in (("fill", "#000"), ("stroke", "")))
        opacities = [float(style.get(name, "1")) for name in ("fill-opacity", "stroke-opacity")]
        if opacities[0] == 0:
            fill = ""
        if not fill and not stroke:
            return
        if opacities != [1.0, 1.0]:
            self.lines.append(f"/{self.target.opacity(*opacities)} gs")
        self.lines += [f"{fill} rg"] if fill else []
        self.lines += [f"{stroke} RG {style.get('stroke-width', '1').removesuffix('px')} w"] if stroke else []
        self.lines.append(f"{path} {'B' if fill and stroke else 'f' if fill else 'S'}")

    def _colour(self, text: str) -> str:
        """Return a colour as three numbers; empty: none."""
        text = self.ink if text == "currentColor" else text
        if text.startswith("#"):
            digits = text[1:] if len(text) == 7 else "".join(2 * digit for digit in text[1:])
            parts = list(bytes.fromhex(digits))
        else:
            parts = [int(float(value)) for value in NUMBER.findall(text)][:3] if text.startswith("rgb") else []
        return " ".join(number(part / 255) for part in parts)

    def _g(self, node: ElementTree.Element, style: Style) -> None:
        self._children(node, style)

    def _rect(self, node: ElementTree.Element, style: Style) -> None:
        x, y, width, height = (float(node.get(name, "0")) for name in ("x", "y", "width", "height"))
        self._paint(f"{number(x)} {number(y)} {number(width)} {number(height)} re", style)

    def _line(self, node: ElementTree.Element, style: Style) -> None:
        x1, y1, x2, y2 = (number(float(node.get(name, "0"))) for name in ("x1", "y1", "x2", "y2"))
        self._paint(f"{x1} {y1} m {x2} {y2} l", {**style, "fill": "none"})

    def _circle(self, node: ElementTree.Element, style: Style) -> None:
        x, y, radius = (float(node.get(name, "0")) for name in ("cx", "cy", "r"))
        side = CIRCLE * radius
        points = [(radius, 0.0), (radius, side), (side, radius), (0.0, radius)]
        path = f"{number(x + radius)} {number(y)} m"
        for _ in range(4):
            corners = " ".join(f"{number(x + a)} {number(y + b)}" for a, b in points[1:])
            path += f" {corners} c"
            points = [(-b, a) for a, b in points]
        self._paint(f"{path} h", style)

    def _path(self, node: ElementTree.Element, style: Style) -> None:
        parts, (x, y) = [], (0.0, 0.0)
        for command, values in re.findall(r"([MLQZ])([^MLQZ]*)", node.get("d", "")):
            at = [float(value) for value in NUMBER.findall(values)]
            if command == "Q":  # as a cubic curve
                (cx, cy), (x1, y1) = at[:2], at[2:]
                curve = (x + 2 / 3 * (cx - x), y + 2 / 3 * (cy - y), x1 + 2 / 3 * (cx - x1), y1 + 2 / 3 * (cy - y1))
                parts.append(" ".join(map(number, (*curve, x1, y1))) + " c")
            else:
                parts.append(f"{' '.join(map(number, at))} {command.lower() if command != 'Z' else 'h'}")
            x, y = at[-2:] if at else (x, y)
        self._paint(" ".join(parts), style)

    def _text(self, node: ElementTree.Element, style: Style) -> None:
        text, size = node.text or "".join(child.tail or "" for child in node), float(style["font-size"].rstrip("px"))
        if not text.strip():
            return
        run = self.texts.run(text)
        x, y = float(node.get("x", "0")), float(node.get("y", "0"))
        x -= {"end": 1.0, "middle": 0.5}.get(style.get("text-anchor", ""), 0.0) * run.width * size / 1000
        y += 0.35 * size if style.get("dominant-baseline") == "central" else 0.0
        self.lines.append(f"1 0 0 -1 {number(x)} {number(y)} cm")
        if not run.font:
            width, height = (value * size / 1000 for value in (run.width, run.height))
            down = (run.height - run.baseline) * size / 1000
            self.lines.append(f"{number(width)} 0 0 {number(height)} 0 {number(-down)} cm /{run.shown} Do")
            return
        colour, bold = self._colour(style.get("fill", "#000")), style.get("font-weight") == "600"
        weight = f"2 Tr {number(size / 30)} w {colour} RG " if bold else ""
        self.lines.append(f"BT /{run.font} {number(size)} Tf {weight}{colour} rg {run.shown} Tj ET")

    def _image(self, node: ElementTree.Element, style: Style) -> None:
        x, y, width, height = (float(node.get(name, "0")) for name in ("x", "y", "width", "height"))
        name = self._picture(node.get("href", ""), style.get("image-rendering") != "pixelated")
        self.lines.append(f"{number(width)} 0 0 {number(-height)} {number(x)} {number(y + height)} cm /{name} Do")

    def _picture(self, url: str, smooth: bool) -> str:
        """Add an image, and return its name."""
        from saccade.look.picture import check_pillow

        check_pillow("a PDF with an image")
        from PIL import Image

        with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as opened:
            image = opened.convert("RGBA")
        header = f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} /BitsPerComponent 8"
        header += f" /Interpolate {'true' if smooth else 'false'}"
        opacity = self.target.add(stream_of(image.getchannel("A").tobytes(), f"{header} /ColorSpace /DeviceGray"))
        colours = stream_of(image.convert("RGB").tobytes(), f"{header} /ColorSpace /DeviceRGB /SMask {opacity} 0 R")
        name = f"I{len(self.target.images)}"
        self.target.images[name] = self.target.add(colours)
        return name


def _declarations(body: str) -> dict[str, str]:
    """Return the properties of a rule of CSS."""
    pairs = (part.partition(":") for part in body.split(";") if ":" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}
