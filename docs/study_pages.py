"""The pages of the site that have one study each, and their list, made of the studies' files when it is built."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from mkdocs.structure.files import File, Files

from components import params
from components.comparison.plots import svg
from components.params import LOSS
from components.report.markdown import table
from components.report.readme_studies import paper_findings, results
from components.studies import plots
from components.studies.folders import REPORTS


def on_files(files: Files, config) -> Files:
    """What mkdocs calls: the pages are added to those of docs/."""
    all_params = params.load()
    files.append(File.generated(config, "studies/index.md", content=list_page(all_params.studies)))
    for name in all_params.studies:
        files.append(File.generated(config, f"studies/{name}.md", content=page(name, all_params)))
    return files


def list_page(studies: Mapping[str, params.Study]) -> str:
    """Every study with its question, and what came out of the papers' effects."""
    body = []
    for name, study in studies.items():
        verdicts = ", ".join(dict.fromkeys(one.verdict for one in paper_findings() if one.study == name))
        state = verdicts or ("has run" if (REPORTS / f"{name}.csv").exists() else "not run yet")
        body.append([f"[{name}]({name}.md)", study.question, str(len(study.variants)), str(len(study.seeds)), state])
    head = ["study", "question", "variants", "seeds", "effects of papers"]
    about = "Each is a file of `studies/params`: [how to write one](../studies.md)."
    return f"# Every study\n\n{about}\n\n{table(head, body)}\n"


def page(name: str, all_params: params.Params) -> str:
    """What a study asks, its file, what was expected, and its results where it has run."""
    study = all_params.studies[name]
    file = Path(params.STUDY_FOLDER, f"{name}.yaml")
    lines = file.read_text(encoding="utf-8").splitlines()
    yaml = "\n".join(line for line in lines if "yaml-language-server" not in line)
    text = f"# {name}\n\n*{study.question}*\n\n"
    if found := results(name):
        text += f"{_effects(name, all_params)}\n\n## What came out\n\n{found}\n\n"
    else:
        text += "This study has not run yet.\n\n"
    command = f"```console\nsesame study {name}\n```"
    return f"{text}{_expected(name, study)}## Run it\n\n{command}\n\n`{file}`:\n\n```yaml\n{yaml}\n```\n"


def _effects(name: str, all_params: params.Params) -> str:
    """The plot of each variant minus the base, as SVG; nothing for a study of one variant."""
    study = all_params.studies[name]
    losses = {name for name in study.evaluations if all_params.evaluations[name].kind == LOSS}
    units = {measure: LOSS if measure in losses else "score" for measure in study.measures} | {LOSS: LOSS}
    figure = plots.effects(study, pd.read_csv(REPORTS / f"{name}.csv"), units)
    if figure is None:
        return ""
    legend = "with the 95 % interval. Green: better beyond noise, orange: worse, grey: not beyond noise."
    return f"{_inline(figure)}\n\nEach variant minus `{study.base}`, {legend}"


def _inline(figure: Figure) -> str:
    """A figure as one HTML element: Markdown would end it at a blank line."""
    return f"<figure>{''.join(line for line in svg(figure).splitlines() if line.strip())}</figure>"


def _expected(name: str, study: params.Study) -> str:
    """What was said before the first run, the paper's figures, and the verdict."""
    if not study.expects:
        return ""
    of_study = [one for one in paper_findings() if one.study == name]
    verdicts = {(one.expected.variant, one.expected.against, one.expected.task): one for one in of_study}
    body = []
    for one in study.expects:
        found = verdicts.get((one.variant, one.against, one.task))
        paper = f"{one.paper.source}: {one.paper.found}" if one.paper else "–"
        here = f"{found.sentence.replace('_', ' ')}: **{found.verdict}**" if found else "–"
        said = f"{one.task.replace('_', ' ')} {one.direction} with {one.variant} than with {one.against or study.base}"
        body.append([said, paper, here])
    return f"## What was expected\n\n{table(['expected', 'in the paper', 'here'], body)}\n\n"
