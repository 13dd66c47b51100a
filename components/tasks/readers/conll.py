"""CoNLL (Tjong Kim Sang and De Meulder 2003): one word per line, its tag in the last column, an empty line between sentences.

Comments before the first word of a sentence are left out: what begins with "# " and has an equals sign, as `# text = ...` of CoNLL-U and
`# id ... domain=en` of MultiCoNER, CoNLL-U's `# newdoc` and `# newpar`, and `#text = ...`. Other lines with `#` are words: a hashtag with
its tags is no comment."""

import re
from collections.abc import Iterator

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import Examples, unknown_label
from components.text import sources
from components.text.sources import tables
from components.text.sources.file import SourceFile
from components.text.sources.tables import value
from components.text.sources.text import fields, lines

COMMENT = re.compile(r"# .*=|# new(doc|par)\b|#\w+ = ")
Sentences = Iterator[tuple[str, list[str], list[tuple[str, str]]]]
"""`(place, words, (place, tag)...)`; without labels no tags are read."""


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield a sentence as text_a, its words joined by spaces, which is also the group.

    Raise SesameError with the place of an undeclared tag, or if the numbers of words and tags differ.
    """
    for number, (place, words, tags) in enumerate(_sentences(source, labelled)):
        if labelled and len(tags) != len(words):
            raise SesameError(f"{place}: {len(words)} words and {len(tags)} tags")
        for tag_place, tag in tags:
            if tag not in task.labels:
                raise unknown_label(tag_place, tag, task.labels)
        label, sentence = [tag for _, tag in tags] if labelled else None, " ".join(words)
        yield place, sentence, Example(f"{split}-{number}", sentence, None, label, words=words)


def _sentences(source: params.Source, labelled: bool) -> Sentences:
    if sources.brings_rows(source.kind):
        for place, row in tables.records(source):
            tags = next((row[column] for column in ("ner_tags", "tags") if column in row), None) if labelled else []
            if tags is None:
                raise SesameError(f"{place}: no column 'ner_tags' or 'tags' (there are: {', '.join(map(str, row))})")
            yield place, list(value(place, row, "tokens")), [(place, str(tag)) for tag in tags]
    else:
        for file in sources.open_files(source):
            yield from _published(file, labelled)


def _published(file: SourceFile, labelled: bool) -> Sentences:
    words, tags, place = [], [], ""
    for number, line in lines(file):
        line_place = f"{file.name}, line {number}"
        if not line.strip():
            if words:
                yield place, words, tags
            words, tags = [], []
        elif not words and COMMENT.match(line):
            continue
        elif (columns := fields(line))[0] != "-DOCSTART-":
            if labelled and len(columns) < 2:
                raise SesameError(f"{line_place}: a word and its tag expected, {line[:40]!r} found")
            place = place if words else line_place
            words.append(columns[0])
            if labelled:
                tags.append((line_place, columns[-1].strip()))
    if words:  # the last sentence may have no empty line after it
        yield place, words, tags
