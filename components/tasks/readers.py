"""Files that are no plain table -> examples: SuperGLUE's structured tasks, SQuAD, CoNLL.

A reader takes the published JSONL and the hub's parquet alike and yields `(place, group, example)`: the place is for
messages, and rows of one group stay on the same side of a split.
One more reader is one function, one line in `READERS`, and its name and kind in `components.params.tasks`.
"""

import re
import string
from collections.abc import Callable, Iterator

from components import params, sources
from components.errors import SesameError
from components.sources import tables
from components.sources.tables import text, value
from components.sources.text import lines
from components.tasks import Example

Found = Iterator[tuple[str, str, Example]]


def unknown(place: str, raw: str, allowed: list[str]) -> SesameError:
    """The error for a label that was not declared."""
    hint = "; -1 stands for no label: is `labelled: false` missing?" if raw == "-1" else ""
    return SesameError(f"{place}: unknown label {raw!r} (allowed: {', '.join(allowed)}{hint})")


def _named(place: str, row: tables.Row, names: dict[str, str]) -> str:
    raw = text(place, row, "label").lower()
    if raw not in names:
        raise unknown(place, raw, list(names))
    return names[raw]


TRUTH = {"false": "false", "true": "true", "0": "false", "1": "true"}
"""How yes and no are written in the files -> the label's name."""


def copa(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """Roemmele et al. 2011: which of two choices is the cause or the effect; the premise and its question are text_a."""
    questions = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
    for place, row in tables.records(source):
        premise, asks = text(place, row, "premise").strip(), text(place, row, "question")
        if asks not in questions:
            raise SesameError(f"{place}: question {asks!r} (allowed: {', '.join(questions)})")
        label = [_named(place, row, {"0": "0", "1": "1", "choice1": "0", "choice2": "1"})] if labelled else None
        choices = {"0": text(place, row, "choice1").strip(), "1": text(place, row, "choice2").strip()}
        yield place, premise, Example(text(place, row, "idx"), f"{premise} {questions[asks]}", None, label, choices=choices)


def multirc(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """Khashabi et al. 2018: is this answer to this question about a passage right; several are. A group is a question."""
    for place, row in tables.records(source):
        for passage, question, answer, ids in _answers(place, row):
            label = _named(place, answer, TRUTH) if labelled else None
            of = f"{ids[0]}-{ids[1]}"
            yield place, ids[0], Example(f"{of}-{ids[2]}", passage.strip(), f"{question} {answer['text']}".strip(), label, group=of)


def _answers(place: str, row: tables.Row) -> Iterator[tuple[str, str, tables.Row, tuple[str, str, str]]]:
    """`(passage, question, {"text", "label"}, the three ids)`, a line for a passage as published or a row for an answer as on the hub."""
    if "paragraph" in row:
        ids = value(place, row, "idx")
        answer = {"text": text(place, row, "answer")} | {key: row[key] for key in ("label",) if key in row}
        numbers = tuple(text(place, ids, key) for key in ("paragraph", "question", "answer"))
        yield text(place, row, "paragraph"), text(place, row, "question"), answer, numbers
        return
    passage = value(place, row, "passage")
    for question in value(place, passage, "questions"):
        for answer in value(place, question, "answers"):
            numbers = (text(place, row, "idx"), text(place, question, "idx"), text(place, answer, "idx"))
            yield text(place, passage, "text"), text(place, question, "question"), answer | {"text": text(place, answer, "text")}, numbers


def record(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """Zhang et al. 2018: which of a passage's entities fills the gap in the query.

    A choice is named by the entity's text and reads as the query with the gap filled; the same text is one choice.
    """
    for place, row in tables.records(source):
        for passage, entities, query, answers, number in _queries(place, row):
            if "@placeholder" not in query:
                raise SesameError(f"{place}: no @placeholder in the query {query[:60]!r}")
            choices = {entity: query.replace("@placeholder", entity).strip() for entity in entities}
            label = list(dict.fromkeys(answers)) if labelled else None
            if labelled and (not label or set(label) - choices.keys()):
                raise SesameError(f"{place}: the answer {', '.join(label) or '(none)'} is not among the entities ({', '.join(choices)})")
            # "@highlight" stands before each bullet point that sums the article up
            read = re.sub(r"\n@highlight\n", ". ", re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", passage))
            yield place, passage, Example(number, read.strip(), None, label, choices=choices)


def _queries(place: str, row: tables.Row) -> Iterator[tuple[str, list[str], str, list[str], str]]:
    """`(passage, entities, query, answers, id)`, a line for a passage as published or a row for a query as on the hub."""
    passage = value(place, row, "passage")
    if isinstance(passage, str):
        number = text(place, value(place, row, "idx"), "query")
        yield passage, value(place, row, "entities"), text(place, row, "query"), value(place, row, "answers"), number
        return
    body, entities = text(place, passage, "text"), []
    for span in value(place, passage, "entities"):
        first, last = value(place, span, "start"), value(place, span, "end")  # the last character, not the one after
        if not 0 <= first <= last < len(body):
            raise SesameError(f"{place}: the entity at {first} to {last} is outside its passage of {len(body)} characters")
        entities.append(body[first : last + 1])
    for query in value(place, row, "qas"):
        answers = [text(place, answer, "text") for answer in query.get("answers") or []]
        yield body, entities, text(place, query, "query"), answers, text(place, query, "idx")


def wic(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """Pilehvar & Camacho-Collados 2019: has a word the same sense in two sentences. `*word*` marks it, its form may differ from `word`."""
    for place, row in tables.records(source):
        texts, spans = {}, []
        for field, n in (("text_a", "1"), ("text_b", "2")):
            sentence, start, end = text(place, row, f"sentence{n}"), value(place, row, f"start{n}"), value(place, row, f"end{n}")
            if not 0 <= start < end <= len(sentence):
                raise SesameError(f"{place}: the word at {start} to {end} is outside sentence{n} of {len(sentence)} characters")
            texts[field], marked = _mark(sentence, [(start, end, "*")])
            spans += [(field, *span) for span in marked]
        label = _named(place, row, TRUTH) if labelled else None
        yield place, text(place, row, "word"), Example(text(place, row, "idx"), texts["text_a"], texts["text_b"], label, spans=spans)


def wsc(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """Levesque et al. 2012: does the pronoun, marked `#it#`, stand for the noun, marked `*noun*`."""
    for place, row in tables.records(source):
        sentence, target = text(place, row, "text"), row.get("target") or row
        marks = []
        for n, mark in (("1", "*"), ("2", "#")):
            span, index = text(place, target, f"span{n}_text"), value(place, target, f"span{n}_index")
            marks.append((*_words_at(place, sentence, span, index), mark))
        marked, spans = _mark(sentence, marks)
        label = _named(place, row, TRUTH) if labelled else None
        yield place, sentence, Example(text(place, row, "idx"), marked, None, label, spans=[("text_a", *span) for span in spans])


def _words_at(place: str, sentence: str, span: str, index: int) -> tuple[int, int]:
    """(first character, end) of `span` in the sentence; `index` counts words between white space.

    The published files are not exact: case differs, some spans end in a full stop that the sentence has not, one index is
    off by a word, and three spans put together names that stand apart, where as many words from the index on are taken.
    """
    words = [(found.start(), found.end()) for found in re.finditer(r"\S+", sentence)]
    pattern = re.compile(r"\s+".join(map(re.escape, span.rstrip(".").split())) + r"(?!\w)", re.IGNORECASE)
    for at in (index, index + 1, index - 1):
        if 0 <= at < len(words) and (found := pattern.match(sentence, words[at][0])) and found.end() > found.start():
            return found.start(), found.end()
    if index >= 0 and index + len(span.split()) <= len(words):
        first, end = words[index][0], words[index + len(span.split()) - 1][1]
        if _bare(sentence[first:end]) & _bare(span):
            return first, end
    there = f"{sentence[words[index][0] :][:40]!r} is" if 0 <= index < len(words) else f"there are only {len(words)} words"
    raise SesameError(f"{place}: {span!r} is not at word {index} of its text, {there} there")


def _bare(words: str) -> set[str]:
    """The words without case and punctuation at their edges, those of three letters and more."""
    return {word for word in (found.strip(string.punctuation).casefold() for found in words.split()) if len(word) > 2}


def _mark(sentence: str, marks: list[tuple[int, int, str]]) -> tuple[str, list[tuple[int, int]]]:
    """The sentence with each `(first, end, mark)` between two marks, and where these stretches now stand, marks included.

    One may lie in another: what opens first closes last.
    """
    cuts = [(first, 1, -end, i, mark) for i, (first, end, mark) in enumerate(marks)]
    cuts += [(end, 0, -first, i, mark) for i, (first, end, mark) in enumerate(marks)]
    marked, before, firsts, ends = "", 0, {}, {}
    for at, opens, _, i, mark in sorted(cuts):
        marked += sentence[before:at] + mark
        before = at
        if opens:
            firsts[i] = len(marked) - 1
        else:
            ends[i] = len(marked)
    return marked + sentence[before:], [(firsts[i], ends[i]) for i in range(len(marks))]


def squad(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """Rajpurkar et al. 2016, version 1.1: the stretch of the context (text_b) that answers the question (text_a)."""
    for place, row, context, answers in _questions(source):
        number = text(place, row, "id")
        place = f"{place}: question {number}"
        spans = {}  # each place once, in their order
        for answer, first in answers if labelled else ():
            if context[first : first + len(answer)] != answer or not answer or first < 0:
                raise SesameError(f"{place}: the answer {answer!r} is not at character {first} of its context")
            spans["text_b", first, first + len(answer)] = answer
        if labelled and not spans:
            raise SesameError(f"{place}: no answer")
        label = list(dict.fromkeys(spans.values())) if labelled else None
        yield place, context, Example(number, text(place, row, "question").strip(), context, label, spans=list(spans) or None)


def _questions(source: params.Source) -> Iterator[tuple[str, tables.Row, str, list[tuple[str, int]]]]:
    """`(place, row, context, (answer, first character)...)`, from SQuAD's one JSON object or from rows as on the hub."""
    if source.kind in sources.ROWS:
        for place, row in tables.records(source):
            found = value(place, row, "answers")
            yield place, row, text(place, row, "context"), list(zip(found["text"], found["answer_start"], strict=True))
        return
    for file in sources.open_files(source):
        with file.open() as stream:
            found = tables.parsed(file.name, stream.read())
        for article in value(file.name, found, "data"):
            for paragraph in value(file.name, article, "paragraphs"):
                context = text(file.name, paragraph, "context")
                for row in value(file.name, paragraph, "qas"):
                    answers = [(text(file.name, one, "text"), value(file.name, one, "answer_start")) for one in row.get("answers") or []]
                    yield file.name, row, context, answers


def conll(task: params.Task, source: params.Source, split: str, labelled: bool) -> Found:
    """A word a line, its tag in the last column, an empty line between sentences (Tjong Kim Sang & De Meulder 2003)."""
    for number, (place, words, tags) in enumerate(_sentences(source, labelled)):
        if labelled and len(tags) != len(words):
            raise SesameError(f"{place}: {len(words)} words and {len(tags)} tags")
        for where, tag in tags:
            if tag not in task.labels:
                raise unknown(where, tag, task.labels)
        label, sentence = [tag for _, tag in tags] if labelled else None, " ".join(words)
        yield place, sentence, Example(f"{split}-{number}", sentence, None, label, words=words)


def _sentences(source: params.Source, labelled: bool) -> Iterator[tuple[str, list[str], list[tuple[str, str]]]]:
    """`(place, words, (place, tag)...)`; without labels no tags are read."""
    if source.kind in sources.ROWS:
        for place, row in tables.records(source):
            tags = next((row[column] for column in ("ner_tags", "tags") if column in row), None) if labelled else []
            if tags is None:
                raise SesameError(f"{place}: no column 'ner_tags' or 'tags' (there are: {', '.join(map(str, row))})")
            yield place, list(value(place, row, "tokens")), [(place, str(tag)) for tag in tags]
        return
    for file in sources.open_files(source):
        words, tags, place = [], [], ""
        for number, line in lines(file):
            where = f"{file.name}, line {number}"
            fields = line.split("\t") if "\t" in line else line.split()
            if not any(field.strip() for field in fields):
                if words:
                    yield place, words, tags
                words, tags = [], []
            elif fields[0] != "-DOCSTART-":
                if labelled and len(fields) < 2:
                    raise SesameError(f"{where}: a word and its tag expected, {line[:40]!r} found")
                place = place if words else where
                words.append(fields[0])
                if labelled:
                    tags.append((where, fields[-1].strip()))
        if words:
            yield place, words, tags


READERS: dict[str, Callable[[params.Task, params.Source, str, bool], Found]] = {
    "copa": copa, "multirc": multirc, "record": record, "wic": wic, "wsc": wsc, "squad": squad, "conll": conll,
}  # fmt: skip
