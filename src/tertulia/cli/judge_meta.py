"""`tertulia judge meta | hybrid | proxy`: how well metrics and judges agree with people, and what predicts people."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars
from tertulia.cli.report import conclude
from tertulia.corpus.identity import describe_artefacts
from tertulia.judge.hybrid import HybridConfig, compute_hybrid, describe_sources
from tertulia.judge.meta import MetaConfig, describe_ratings, run_meta
from tertulia.judge.proxy import ProxyConfig, run_proxy


@command(MetaConfig)
def meta(settings: MetaConfig, *, as_json: bool) -> None:
    """Correlate metrics and judges with people's ratings of replies, conversations and systems, and show agreement."""
    with Bars() as bars:
        run = run_meta(settings, bars)
    conclude(run, settings.out, data=lambda: describe_ratings(settings), as_json=as_json)


@command(HybridConfig)
def hybrid(settings: HybridConfig, *, as_json: bool) -> None:
    """Fit a combination of metrics to people's ratings, leaving each bot out, and apply it to self-play."""
    with Bars() as bars:
        outcome = compute_hybrid(settings, bars)
    conclude(
        outcome.run,
        settings.out,
        data=lambda: describe_sources(settings),
        as_json=as_json,
        save_more=lambda: outcome.save_model(settings),
    )


@command(ProxyConfig)
def proxy(settings: ProxyConfig, *, as_json: bool) -> None:
    """Measure how much of the differences between bots in people's eyes a metric explains (SSA and perplexity)."""
    sources = {"human": settings.human, "metrics": settings.metrics}
    conclude(run_proxy(settings), settings.out, data=lambda: describe_artefacts(**sources), as_json=as_json)
