"""Citation graphs of LINQS: NAME.content (paper, words as 0 and 1, label) and NAME.cites (cited, citing)."""

from __future__ import annotations

from pathlib import Path

from saccade.data.graphs.building import GraphBuilder
from saccade.data.graphs.graph import Graph, Graphs, Value
from saccade.data.settings import GraphSettings
from saccade.data.tables.problems import Problem, Problems
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import sniff


def find_linqs(folder: Path) -> tuple[Path, Path] | None:
    """Return the two files of a folder; None if it does not have them."""
    if not folder.is_dir():
        return None
    content = sorted(folder.glob("*.content"))
    cites = content[0].with_suffix(".cites") if len(content) == 1 else None
    return (content[0], cites) if cites is not None and cites.is_file() else None


def read_linqs(content: Path, cites: Path, settings: GraphSettings) -> Graphs:
    """Return the graph of the papers; citations of papers that are not among them are left out and counted."""
    problems = Problems()
    builder = GraphBuilder(problems, settings.directed)
    encoding = settings.encoding or None
    words, labels, width = list[Value](), list[str](), 0
    lines = Lines(sniff(content, encoding=encoding))
    for line in lines:
        lines.recent.clear()
        cells = line.split()
        if not cells:
            continue
        width = width or len(cells)
        bad = next((at for at, cell in enumerate(cells[1:-1], 2) if cell not in ("0", "1")), None)
        if len(cells) != width or width < 3:
            what, expected = f"{len(cells)} columns", f"{max(width, 3)}: the paper, its words and its label"
            problems.add(Problem(content, lines.number, None, what, expected, "correct the line"))
        elif bad is not None:
            what = f"column {bad} is '{cells[bad - 1][:20]}'"
            problems.add(Problem(content, lines.number, None, what, "0 or 1 for each word", "correct the line"))
        elif builder.add_node(cells[0], content, lines.number):
            words.append(tuple(str(at) for at, cell in enumerate(cells[1:-1]) if cell == "1"))
            labels.append(cells[-1])
    unknown = _read_cites(cites, builder, encoding, problems)
    problems.check()
    source, target = builder.ends()
    graph = Graph(
        tuple(builder.nodes),
        source,
        target,
        {"words": words},
        {},
        settings.directed,
        node_labels=tuple(labels),
        origin=content.name,
    )
    notes = [*builder.notes()]
    if unknown:
        notes.append(f"{unknown:,} citations left out: of papers that {content.name} does not have")
    return Graphs((graph,), "node", tuple(notes), files=(str(content), str(cites)))


def _read_cites(path: Path, builder: GraphBuilder, encoding: str | None, problems: Problems) -> int:
    """Add the citations; return how many name a paper that there is not, as those of CiteSeer do."""
    unknown = 0
    lines = Lines(sniff(path, encoding=encoding))
    for line in lines:
        lines.recent.clear()
        cells = line.split()
        if len(cells) not in (0, 2):
            what = f"{len(cells)} columns"
            problems.add(Problem(path, lines.number, None, what, "2: cited and citing paper", "correct the line"))
        elif cells and not all(cell in builder.nodes for cell in cells):
            unknown += 1
        elif cells:
            builder.add_edge(cells[1], cells[0], path, lines.number)
    return unknown
