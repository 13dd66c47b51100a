"""The modules of ours that a module imports, over all steps, and one number for what they say."""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[2]

FRAME = ("components.params", "components.block", "components.stage", "components.tracking", "components.errors", "components.resolve")
"""Around every stage and not what it computes: settings stand in each entry themselves, the others write, log and report."""


def file_of(module: str) -> Path | None:
    """Where a module of ours is written, from the project's folder; None for one of a library."""
    path = Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if module.partition(".")[0] == "components" and (ROOT / candidate).is_file():
            return candidate
    return None


@cache
def imported(module: str) -> frozenset[str]:
    """Modules of ours that a module names in its import statements, wherever in it they stand, but those for type checkers alone."""
    path = file_of(module)
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in _run(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}  # a name may be a module
    return frozenset(name for name in names if file_of(name))


def _run(tree: ast.AST) -> Iterable[ast.AST]:
    """Every statement but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _run(node)


def framed(module: str) -> bool:
    """Whether a module belongs to the frame."""
    return any(module == frame or module.startswith(f"{frame}.") for frame in FRAME)


def modules(roots: Iterable[str]) -> list[str]:
    """The roots and all that they import, with the packages that these stand in, without the frame; sorted.

    Modules that are found by name (a family, an objective, a method ...) are no import: who uses one names it among the roots.
    """
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module in reached or framed(module):
            continue
        reached.add(module)
        package = module.rpartition(".")[0]
        waiting += [*imported(module), *([package] if package else [])]
    return sorted(reached)


def files(roots: Iterable[str]) -> list[Path]:
    """What the modules are written in, and beside them what is no Python: templates, tables of papers' figures."""
    written = {file_of(module) for module in modules(roots)}
    beside = {
        path.relative_to(ROOT) for folder in {path.parent for path in written} if folder != Path("components")
        for path in (ROOT / folder).iterdir() if path.is_file() and path.suffix not in (".py", ".pyc") and not path.name.startswith(".")
    }  # fmt: skip
    return sorted(written | beside)


def fingerprint(roots: Iterable[str]) -> str:
    """Of all that these modules run: the same when comments, docstrings and blank lines alone are other ones."""
    digest = hashlib.sha256()
    for path in files(roots):
        digest.update(f"{path}\0{_essence(path)}\0".encode())
    return digest.hexdigest()[:16]


@cache
def _essence(path: Path) -> str:
    """What of a file can change what it computes."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in _docstrings(ast.parse(text)):
        for row in range(node.lineno - 1, node.end_lineno):
            lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _docstrings(tree: ast.AST) -> Iterable[ast.Expr]:
    """Strings that stand as statements of their own: of modules, classes, functions and of what is assigned above them."""
    for node in ast.walk(tree):
        for part in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):
                yield part
