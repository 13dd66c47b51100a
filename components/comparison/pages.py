"""HTML pages from templates that extend `base.html.j2`."""

import hashlib
import os
import platform
from pathlib import Path

import psutil
from jinja2 import Environment, FileSystemLoader, select_autoescape

from components.core import storage
from components.core.tracking import git_commit
from components.params import files

PAGES = {
    "Report": Path("data/report/index.html"), "Studies": Path("data/report/studies/index.html"), "Search": Path("data/search/index.html"),
    "Seeds": Path("data/report/seeds.html"), "Efficiency": Path("data/report/efficiency.html"), "Tickets": Path("data/report/tickets.html"),
}  # fmt: skip
"""The pages that every page leads to, in the order of its first line."""


def write(path: Path, template: Path, title: str, **values: object) -> None:
    """Render a template, which may use those of this folder, to `path`. Each page leads to the others that are there, and shows its commit,
    params and machine."""
    loader = FileSystemLoader([template.parent, Path(__file__).parent])
    environment = Environment(loader=loader, autoescape=select_autoescape(default=True, default_for_string=True))
    environment.tests["number"] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    written = b"".join(file.read_bytes() for file in files())
    origin = {"commit": git_commit(), "params_sha": hashlib.sha256(written).hexdigest(), "machine": machine()}
    here = next((name for name, place in PAGES.items() if place.absolute() == path.absolute()), None)
    links = {name: os.path.relpath(place, path.parent) for name, place in PAGES.items() if name == here or place.exists()}
    page = environment.get_template(template.name).render(title=title, navigation=links, here=here, **origin, **values)
    with storage.output(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def machine() -> str:
    """Describe the machine."""
    gib = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} CPU cores, {gib:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"
