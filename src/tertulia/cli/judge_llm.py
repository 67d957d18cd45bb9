"""`tertulia judge llm` and `tertulia judge ppi`: a language model as a judge, and people's verdict with its help."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, err, out, print_json
from tertulia.cli.report import conclude
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.errors import keeping
from tertulia.corpus.identity import describe_artefacts, describe_paths
from tertulia.judge.llm.config import LlmJudgeConfig
from tertulia.judge.ppi import PpiConfig, run_ppi


@command(LlmJudgeConfig)
def llm(settings: LlmJudgeConfig, *, as_json: bool) -> None:
    """Ask a language model what people are asked in studies, and how far it agrees with people.

    Answers are kept: the same command goes on where it was interrupted, and a finished one makes no calls.
    """
    from tertulia.judge.llm.run import describe_cost, planned_judge, run_llm  # an HTTP client, for this judge only

    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        with planned_judge(settings, problems) as plan:
            if settings.dry_run:
                cost: Json = plan.cost._asdict()
                print_json(cost) if as_json else out.print(describe_cost(plan.cost), markup=False)
                return
            err.print(describe_cost(plan.cost), markup=False, soft_wrap=True)
            with keeping("The answers so far are kept."):
                run = run_llm(plan, settings, bars)
    conclude(run, settings.out, data=lambda: _describe_data(settings), as_json=as_json, problems=problems)


def _describe_data(settings: LlmJudgeConfig) -> dict[str, Json]:
    people = {"people": describe_artefacts(human=settings.human)} if settings.human else {}
    return describe_paths(settings.data, None) | people


@command(PpiConfig)
def ppi(settings: PpiConfig, *, as_json: bool) -> None:
    """Estimate what people would say about all units from their labels of a random part and a judge's of all.

    Intervals are valid whatever the judge is worth; the better it is, the more labels of people it saves.
    """
    sources = {"human": settings.human, "judge": settings.judge}
    conclude(run_ppi(settings), settings.out, data=lambda: describe_artefacts(**sources), as_json=as_json)
