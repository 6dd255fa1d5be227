"""The import table and the sizes of DESIGN: who may know whom, and how long a thing may be."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent / "saccade"

# What each part of the house may import of ours. A part that is not here may not exist.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "atomic_io": {"errors"},
    "tensor_files": {"errors"},
    "config": {"errors"},
    "core": {"errors"},
    "nn": set(),
    "models": {"nn"},
    "decode": {"nn"},
    "metrics": {"core"},
    "data": {"atomic_io", "core", "errors"},
    "pretrained": {"atomic_io", "config", "core", "data", "errors", "models", "nn", "tasks", "tensor_files"},
    "tasks": {
        *("atomic_io", "config", "core", "data", "decode", "errors", "loading", "look", "metrics", "models", "nn"),
        *("pretrained", "runs"),
    },
    "runs": {"atomic_io", "config", "core", "errors", "tensor_files"},
    "training": {"atomic_io", "core", "errors", "runs"},
    "loading": {"atomic_io", "config", "core", "errors", "runs", "tasks", "training"},
    "look": {"config", "core", "errors", "metrics", "models", "nn", "pretrained", "tasks"},
    "progress": set(),
    "api": {
        *("atomic_io", "config", "core", "errors", "loading", "look", "pretrained", "runs", "tasks", "training"),
    },
    "comparison": {
        *("api", "atomic_io", "config", "core", "data", "errors", "loading", "look", "metrics", "models", "nn"),
        *("runs", "tasks", "training"),
    },
    "demo": {"errors"},
    "studio": {"api", "atomic_io", "core", "errors", "look", "runs"},
    "cli": {"api", "comparison", "config", "demo", "errors", "look", "pretrained", "progress", "studio"},
    "__main__": {"cli"},
    "__init__": set(),
}

LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 60, 8
LARGEST = {"nn": 2000, "models": 1500}  # lines; every architecture is one small file on the same nn


def modules():
    return sorted(ROOT.rglob("*.py"))


def part(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_parts(tree: ast.Module) -> set[str]:
    """Parts of saccade that a module imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("saccade.")}
    return found - {"__version__"}


def test_every_part_is_in_the_table():
    assert {part(path) for path in modules()} == MAY_IMPORT.keys()


def test_imports_follow_the_table():
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path in modules()
        for other in sorted(imported_parts(ast.parse(path.read_text())))
        if other != part(path) and other not in MAY_IMPORT[part(path)]
    ]
    assert not wrong


def test_nn_knows_tensors_only():
    allowed = {"torch", "saccade", "typing", "collections", "dataclasses", "functools", "math", "contextlib"}
    allowed |= {"abc", "bisect", "contextvars", "fnmatch", "threading", "__future__"}
    for path in (ROOT / "nn").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_files_and_functions_stay_short():
    wrong = []
    for path in modules():
        text = path.read_text()
        if len(text.splitlines()) > LONGEST_FILE:
            wrong.append(f"{path.relative_to(ROOT)} has {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION:
                wrong.append(f"{path.relative_to(ROOT)}: {node.name} has {node.end_lineno - node.lineno + 1} lines")
            named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len([argument for argument in named if argument.arg not in ("self", "cls")])
            if count > MOST_PARAMETERS:
                wrong.append(f"{path.relative_to(ROOT)}: {node.name} has {count} parameters")
    assert not wrong


def test_the_core_stays_small():
    for name, most in LARGEST.items():
        assert sum(len(path.read_text().splitlines()) for path in modules() if part(path) == name) <= most, name


def test_no_module_is_named_for_nothing():
    names = {path.stem for path in modules()} | {path.parent.name for path in modules()}
    assert not names & {"utils", "helpers", "common", "base", "misc", "manager"}


def test_every_module_says_what_it_is_for():
    silent = [
        path for path in modules() if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_no_pickle_anywhere():
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"pickle", "dill", "cloudpickle", "shelve"}, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                assert node.attr not in ("load", "save") or path.name == "pickles.py", path


def test_the_one_place_that_opens_pickles_lets_them_build_tensors_only():
    tree = ast.parse((ROOT / "pretrained" / "pickles.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    loads = [call for call in calls if ast.unparse(call.func) == "torch.load"]
    assert [{word.arg: ast.unparse(word.value) for word in call.keywords}["weights_only"] for call in loads] == ["True"]
