"""The pages of the site that are made when it is built: the README, every key of the params files, and every
command."""

import json
from pathlib import Path

import typer
from mkdocs.structure.files import File, Files

from components import params
from pipelines import cli


def on_files(files: Files, config) -> Files:
    """What mkdocs calls: the pages are added to those of docs/."""
    readme = Path(config.config_file_path).with_name("README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    for name, text in (("readme", readme), ("reference/params", params_page()), ("reference/cli", cli_page())):
        files.append(File.generated(config, f"{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """The README is a page here."""
    return markdown.replace("](../README.md", "](readme.md")


SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme fetches for its search in a folder: the site has a copy."""


def on_post_page(output: str, page, **_) -> str:
    return output.replace(SHIM, f"{'../' * page.file.dest_uri.count('/')}assets/iframe-worker.js")


def on_post_template(output_content: str, **_) -> str:
    return output_content.replace(SHIM, "assets/iframe-worker.js")


def params_page() -> str:
    """A table of keys for each section of the files, and for each block that is used in several places."""
    schemas = {path.stem.partition(".")[0]: json.loads(text) for path, text in params.schemas().items()}
    text = "# Every key\n\nMade of the typed models in `components/params`. A key without a default has to be given.\n"
    blocks = {}
    for name, file in (
        ("params", params.FILE),
        ("studies", params.STUDIES),
        ("study", f"{params.STUDY_FOLDER}/NAME.yaml"),
    ):
        text += f"\n## {file}\n\n{_table(schemas[name])}"
        blocks |= schemas[name]["$defs"]
    return (
        text
        + "\n## Blocks\n"
        + "".join(f"\n### {name}\n\n{_paragraph(own)}{_table(own)}" for name, own in sorted(blocks.items()))
    )


def _paragraph(block: dict) -> str:
    return f"{block['description']}\n\n" if "description" in block else ""


def _table(block: dict) -> str:
    """Key, what it takes, its meaning; nothing of a block that has no keys."""
    if not block.get("properties"):
        return ""
    needed = block.get("required", ())
    rows = [
        f"| `{key}`{' (needed)' if key in needed else ''} | {_kind(own)} | {own.get('description', '').replace('|', chr(92) + '|')} |"
        for key, own in block["properties"].items()
    ]
    return "\n".join(["| key | takes | meaning |", "|---|---|---|", *rows]) + "\n"


def _kind(own: dict) -> str:
    """What a key takes, with links to blocks."""
    if "$ref" in own:
        name = own["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in own:
            return " or ".join(dict.fromkeys(map(_kind, own[several])))
    if "const" in own or "enum" in own:
        return ", ".join(f"`{value}`" for value in own.get("enum", [own.get("const")]))
    if own.get("type") == "array":
        return f"list of {_kind(own.get('items', {}))}"
    if own.get("type") == "object":
        values = next(iter(own.get("patternProperties", {}).values()), own.get("additionalProperties"))
        return f"names, each with {_kind(values)}" if isinstance(values, dict) else "a mapping"
    return str(own.get("type", "any value"))


def cli_page() -> str:
    """Help, arguments and options of each command."""
    text = "# Every command\n\nAs `sesame COMMAND --help` has it.\n"
    for name, command in sorted(_commands(typer.main.get_command(cli.app), "sesame").items()):
        text += f"\n## {name}\n\n{command.help or ''}\n"
        rows = [
            f"| `{'`, `'.join(own.opts) if own.param_type_name == 'option' else own.metavar or own.name.upper()}` "
            f"| {(getattr(own, 'help', None) or '').replace('|', chr(92) + '|')} |"
            for own in command.params if own.name != "help"
        ]  # fmt: skip
        text += "\n".join(["\n| argument or option | meaning |", "|---|---|", *rows]) + "\n" if rows else ""
    return text


def _commands(group, name: str) -> dict:
    if not getattr(group, "commands", None):
        return {name: group}
    return {
        key: own
        for part, command in group.commands.items()
        for key, own in _commands(command, f"{name} {part}").items()
    }
