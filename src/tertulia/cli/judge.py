"""`tertulia judge ...`: judge bots and models. Every command prints its report and can save a judged run."""

from collections.abc import Mapping

from tertulia.cli.command import command
from tertulia.cli.output import Bars
from tertulia.cli.report import conclude
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.errors import keeping
from tertulia.judge.config import JudgeConfig, PerplexityConfig, ProfileConfig, RankConfig, SamplesConfig
from tertulia.judge.profiles import run_profiles
from tertulia.judge.rank import run_rank
from tertulia.judge.runs import describe_data
from tertulia.lab.curve import CurveConfig, run_curve


@command(RankConfig)
def rank(settings: RankConfig, *, as_json: bool) -> None:
    """Measure how often bots find the true reply among distractors, with 95% intervals."""
    problems = Problems()
    with Bars() as bars:
        run = run_rank(settings, bars, problems)
    conclude(
        run,
        settings.out,
        data=lambda: _data(settings),
        as_json=as_json,
        problems=problems,
        page=settings.report,
    )


@command(CurveConfig)
def curve(settings: CurveConfig, *, as_json: bool) -> None:
    """Train a recipe on more and more dialogues and measure hits@1 by training size (Ubuntu paper, figure 3)."""
    problems = Problems()
    with keeping(f"The sizes that are finished are kept in {settings.out}."), Bars() as bars:
        run = run_curve(settings, bars, problems)

    def data() -> Mapping[str, Json]:
        return describe_data(str(run.config["data"]), settings.split or None)

    conclude(run, settings.out, data=data, as_json=as_json, problems=problems)


@command(ProfileConfig)
def profiles(settings: ProfileConfig, *, as_json: bool) -> None:
    """Measure how often tf-idf predicts a speaker's profile wrongly (Persona-Chat, tables 13 and 14)."""
    problems = Problems()
    with Bars() as bars:
        run = run_profiles(settings, bars, problems)
    conclude(run, settings.out, data=lambda: _data(settings), as_json=as_json, problems=problems)


@command(PerplexityConfig)
def perplexity(settings: PerplexityConfig, *, as_json: bool) -> None:
    """Measure the perplexity of models on human turns, and how similar their replies are to human ones."""
    from tertulia.judge.perplexity import run_perplexity  # needs torch, which the other judges do not

    problems = Problems()
    with Bars() as bars:
        run = run_perplexity(settings, bars, problems)
    conclude(run, settings.out, data=lambda: _data(settings), as_json=as_json, problems=problems)


@command(SamplesConfig)
def samples(settings: SamplesConfig, *, as_json: bool) -> None:
    """Compare a model's best samples with beam search, and the effect of more samples (Meena, tables 2 and 3)."""
    from tertulia.judge.samples import describe_prompts, run_samples  # needs torch, which the other judges do not

    with Bars() as bars:
        run = run_samples(settings, bars)
    conclude(run, settings.out, data=lambda: describe_prompts(settings), as_json=as_json)


def _data(settings: JudgeConfig) -> Mapping[str, Json]:
    return describe_data(settings.data, settings.selected_split)
