"""Two files of as many lines: texts and what is to be written of each, as sentences and their translations."""

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import Examples
from components.text.sources.parallel import translations


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """A line is text_a, and that of the other file its label. Lines of the same text stay on one side of a split.

    Raises SesameError where these are not two files of as many lines, with both counts, and for a split without labels.
    """
    if not labelled:
        raise SesameError(f"{split}: reader parallel reads two files, of which the second are the labels; leave labelled: false out")
    for number, (text, target) in enumerate(translations(f"{split}: {source.shown}", source)):
        text = text.strip()
        yield f"{source.shown} line {number + 1}", text, Example(f"{split}-{number}", text, None, [target.strip()])
