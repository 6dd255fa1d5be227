"""The import table and the sizes of the design: which package may import which, and how long a thing may be."""

import ast
import graphlib
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "saccade"

# What each package may import of ours. A package that is not here may not exist.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "atomic_io": {"errors"},
    "tensor_files": {"errors"},
    "config": {"errors"},
    "core": {"errors"},
    "nn": set(),
    "models": {"nn"},
    "decode": {"core", "models", "nn"},
    "metrics": {"core", "errors"},
    "worlds": set(),
    "data": {"atomic_io", "core", "errors", "worlds"},
    "pretrained": {"atomic_io", "config", "core", "data", "errors", "models", "nn", "tensor_files"},
    "tasks": {
        *("atomic_io", "config", "core", "data", "decode", "errors", "metrics", "models", "nn", "pretrained", "worlds"),
    },
    "runs": {"atomic_io", "config", "core", "errors", "tensor_files"},
    "training": {"atomic_io", "config", "core", "errors", "runs"},
    "loading": {"atomic_io", "config", "core", "errors", "pretrained", "runs", "tasks", "training"},
    "look": {"atomic_io", "config", "core", "data", "errors", "metrics", "models", "nn", "pretrained", "tasks"},
    "progress": {"core", "errors"},
    "model": {"config", "core", "errors", "look", "pretrained"},
    "run": {"core", "runs"},
    "starting": {"config", "errors", "runs", "training"},
    "summaries": {"core", "errors", "runs", "tasks"},
    "api": {
        *("atomic_io", "config", "core", "errors", "loading", "model", "pretrained", "progress", "run", "runs"),
        *("starting", "summaries", "tasks", "training"),
    },
    "comparison": {
        *("api", "atomic_io", "config", "core", "data", "errors", "look", "metrics", "models", "nn", "progress"),
        *("run", "runs", "tasks", "training"),
    },
    "checks": {
        *("api", "atomic_io", "core", "data", "errors", "loading", "model", "models", "nn", "run", "runs"),
    },
    "fewshot": {"atomic_io", "comparison", "core", "data", "errors", "metrics"},
    "planning": {
        *("api", "atomic_io", "config", "core", "errors", "loading", "models", "nn", "pretrained", "progress", "runs"),
        "training",
    },
    "interactive": {"atomic_io", "config", "core", "errors"},
    "demo": {"data", "errors", "worlds"},
    "lectures": {
        *("api", "atomic_io", "comparison", "core", "data", "decode", "demo", "errors", "fewshot", "interactive"),
        *("look", "metrics", "model", "models", "nn", "planning", "tasks", "worlds"),
    },
    "__init__": {"api", "checks", "comparison", "core", "errors", "model", "planning", "run"},
    "studio": {"api", "core", "errors", "look", "model", "planning", "runs"},
    "serve": {"api", "core", "errors", "look", "model"},
    "cli": {
        *("api", "checks", "comparison", "core", "demo", "errors", "fewshot", "interactive", "lectures", "look"),
        *("model", "planning", "progress", "run", "serve"),
        "studio",
    },
    "__main__": {"cli"},
}

LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 60, 8
LARGEST_CORE = 8600  # lines of nn and models together; every architecture is one small file on the same nn


def modules():
    return sorted(ROOT.rglob("*.py"))


def package(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> set[str]:
    """Every name a module imports, anywhere."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_packages(tree: ast.AST) -> set[str]:
    """Packages of saccade that a module imports anywhere, also inside functions."""
    names = {name.split(".")[1] for name in imported_names(tree) if name.startswith("saccade.")}
    return names - {"__version__"}


def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in modules()}


def test_every_package_is_in_the_table():
    assert {package(path) for path in modules()} == MAY_IMPORT.keys()


def test_imports_follow_the_table():
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path, tree in parsed().items()
        for other in sorted(imported_packages(tree))
        if other != package(path) and other not in MAY_IMPORT[package(path)]
    ]
    assert not wrong


def test_the_table_has_no_cycle_and_nothing_unused():
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()  # raises CycleError
    used: dict[str, set[str]] = {name: set() for name in MAY_IMPORT}
    for path, tree in parsed().items():
        used[package(path)] |= imported_packages(tree) - {package(path)}
    assert {name: allowed - used[name] for name, allowed in MAY_IMPORT.items() if allowed - used[name]} == {}


def test_modules_have_no_cycle():
    known = {dotted(path) for path in modules()}
    graph: dict[str, set[str]] = {}
    for path, tree in parsed().items():
        names = imported_names(tree)
        graph[dotted(path)] = {
            other for name in names for other in (name, name.rpartition(".")[0]) if other in known
        } - {dotted(path), "saccade"}
        # `from saccade.core import X` names the package, whose __init__ gathers its own modules.
        graph[dotted(path)] -= {dotted(path).rpartition(".")[0]}
    graphlib.TopologicalSorter(graph).prepare()


def outside_imports(name: str) -> set[str]:
    found: set[str] = set()
    for path, tree in parsed().items():
        if package(path) == name:
            found |= {one.split(".")[0] for one in imported_names(tree)}
    return found - set(sys.stdlib_module_names) - {"saccade"}


def test_core_and_nn_import_torch_alone():
    assert outside_imports("core") == {"torch"}
    assert outside_imports("nn") == {"torch"}


def test_models_know_no_tokenizer_and_training_no_data_format():
    assert outside_imports("models") == {"torch"}
    assert outside_imports("training") <= {"torch", "numpy"}
    assert not MAY_IMPORT["training"] & {"data", "models", "nn", "pretrained", "tasks"}


def test_no_task_opens_a_run_folder():
    assert not MAY_IMPORT["tasks"] & {"runs", "loading"}


def test_front_ends_stand_on_the_public_api_and_can_be_deleted():
    for name in ("cli", "serve", "studio"):
        assert not MAY_IMPORT[name] & {"nn", "models", "training", "tasks", "data"}
    ends = {"cli", "serve", "studio"}
    others = {name: allowed & ends for name, allowed in MAY_IMPORT.items() if allowed & ends}
    assert others == {"__main__": {"cli"}, "cli": {"serve", "studio"}}
    for path, tree in parsed().items():
        if package(path) == "cli":  # the verbs that open them import them when they are called
            direct = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            top = imported_packages(ast.Module(direct, []))
            assert not {"serve", "studio"} & top, path


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
    lines = [len(path.read_text().splitlines()) for path in modules() if package(path) in ("nn", "models")]
    assert sum(lines) <= LARGEST_CORE


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
