"""The modules of ours that a module imports, over all steps, and one number for what they say."""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

from components.core.errors import SesameError

ROOT = Path(__file__).parents[2]

FRAME = (
    "components.params", "components.core.config", "components.core.errors", "components.core.storage",
    "components.core.processes", "components.core.mlflow_values", "components.core.tracking",
    "components.stages.closure", "components.stages.cost", "components.stages.declaration",
    "components.stages.launch", "components.stages.outputs", "components.stages.parts",
    "components.stages.registry", "components.stages.resolve", "components.stages.stage",
)  # fmt: skip
"""Modules that no result depends on: they read settings, which are in each entry themselves, and write, log and report."""


@cache
def file_of(module: str) -> Path | None:
    """Where a module of ours is written, from the project's folder; None for one of a library."""
    path = Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if module.partition(".")[0] == "components" and (ROOT / candidate).is_file():
            return candidate
    return None


@dataclass(frozen=True)
class Facts:
    """What is to be known of a file, Python or a template."""

    imports: list[str]
    """Modules of ours in its import statements, wherever in it these stand, but those for type checkers alone."""
    texts: list[str]
    """Texts in it that may be names of files."""
    syntax: str
    """A hash of what can change what it computes: all but comments, docstrings and how its lines are broken."""


def _read(path: Path, text: str) -> Facts:
    if path.suffix != ".py":
        return Facts([], re.findall(r'"([\w.]+)"', text), hashlib.sha256(text.encode()).hexdigest())
    tree, module = ast.parse(text), ".".join(path.with_suffix("").parts)
    package = module.removesuffix(".__init__") if path.name == "__init__.py" else module.rpartition(".")[0]
    names, texts = set(), set()
    for node in _run(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}  # a name may be a module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value and len(node.value) < 100:
            texts.add(node.value)
    ours = sorted(name for name in names if name.partition(".")[0] == "components")
    return Facts(ours, sorted(texts), hashlib.sha256(_syntax(tree).encode()).hexdigest())


REMEMBERED = Path(".sesame/code.json")
"""Facts by the hash of a file's content: to parse all of them takes seconds."""


class _Memory:
    """Facts of files, remembered over processes. A file that can't be read or written is no harm: what it has is made
    again."""

    def __init__(self):
        self.known: dict[str, dict] = {}
        with suppress(OSError, ValueError):
            self.known = json.loads(REMEMBERED.read_text(encoding="utf-8"))
        self.seen: dict[Path, Facts] = {}
        self.learned = False

    def of(self, path: Path) -> Facts:
        """Of a file, by its path from the project's folder."""
        if path not in self.seen:
            text = (ROOT / path).read_text(encoding="utf-8")
            key = hashlib.sha256(f"{path}\0{text}".encode()).hexdigest()[:32]
            try:
                facts = Facts(**self.known[key])
            except (KeyError, TypeError):
                facts = _read(path, text)
                self.known[key], self.learned = asdict(facts), True
            self.seen[path] = facts
        return self.seen[path]

    def keep(self) -> None:
        """Write down what was learned."""
        if self.learned:
            self.learned = False
            with suppress(OSError):
                REMEMBERED.parent.mkdir(exist_ok=True)
                beside = REMEMBERED.with_suffix(f".{os.getpid()}")
                beside.write_text(json.dumps(self.known), encoding="utf-8")
                beside.replace(REMEMBERED)


@cache
def _memory() -> _Memory:
    return _Memory()


def imported(module: str) -> list[str]:
    """Modules of ours that a module imports. Raises SesameError where it has no file, as a name in a registry may."""
    if (path := file_of(module)) is None:
        raise SesameError(f"{module}: no such module, and the name of one in a registry of components/params; write its file")
    return [name for name in _memory().of(path).imports if file_of(name)]


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _run(node)


def framed(module: str) -> bool:
    """Whether a module belongs to the frame, or is a `config.py` or a `stages.py`: settings stand in each entry themselves."""
    return module.endswith((".config", ".stages")) or any(module == frame or module.startswith(f"{frame}.") for frame in FRAME)


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
    """What the modules are written in, and the templates and tables that they read: files beside them that they name."""
    written = {file_of(module) for module in modules(roots)}
    waiting, read = [path for file in written for path in _named(file)], set()
    while waiting:
        path = waiting.pop()
        if path not in read:
            read.add(path)
            waiting += _named(path)  # a template extends others
    return sorted(written | read)


TEMPLATES = Path("components/comparison")
"""Whose templates those of other folders extend."""


@cache
def _named(path: Path) -> tuple[Path, ...]:
    """Files that are no Python, beside one or (for a template) among the shared ones, whose names stand in it."""
    folders = (path.parent, TEMPLATES) if path.suffix == ".j2" else (path.parent,)
    places = {folder / text for folder in folders for text in _memory().of(path).texts if text.endswith((".j2", ".yaml", ".json"))}
    return tuple(sorted(place for place in places if (ROOT / place).is_file() and place != path))


@cache
def _fingerprint(roots: frozenset[str]) -> str:
    digest = hashlib.sha256()
    for path in files(roots):
        digest.update(f"{path} {_memory().of(path).syntax}\n".encode())
    _memory().keep()
    return digest.hexdigest()[:16]


def fingerprint(roots: Iterable[str]) -> str:
    """Of all that these modules run."""
    return _fingerprint(frozenset(roots))


def forget() -> None:
    """Files may be other ones by now: look at them again."""
    for cached in (file_of, _memory, _named, _fingerprint):
        cached.cache_clear()


def _syntax(node: ast.AST | list | object) -> str:
    """Return a syntax tree as text, without docstrings. It has no comments, line breaks and spare brackets.

    Empty fields are left out: versions of Python differ in them.
    """
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={_syntax(value)}"
            for name, value in ast.iter_fields(node)
            if name not in ("ctx", "kind") and value not in (None, [])
        ]
        return f"{type(node).__name__}({', '.join(fields)})"
    if isinstance(node, list):
        return f"[{', '.join(_syntax(part) for part in node if not _docstring(part))}]"
    return repr(node)


def _docstring(node: ast.AST) -> bool:
    """Whether it is a text as a statement of its own: of a module, class, function or what is assigned above it."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
