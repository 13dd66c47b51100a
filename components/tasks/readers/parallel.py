"""Two files with the same number of lines: source texts and target texts, e.g. sentences and their translations."""

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import Examples
from components.text.sources.parallel import translations


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield a line as text_a with the line of the other file as its label. Lines with the same text stay in the same split.

    Raise SesameError unless there are two files with the same number of lines, and for a split without labels.
    """
    if not labelled:
        raise SesameError(f"{split}: reader parallel reads two files, of which the second are the labels; leave labelled: false out")
    for number, (text, target) in enumerate(translations(f"{split}: {source.shown}", source)):
        text = text.strip()
        yield f"{source.shown} line {number + 1}", text, Example(f"{split}-{number}", text, None, [target.strip()])
