"""`tertulia judge meta | hybrid | proxy`: how well metrics and judges agree with people, and what predicts people."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars
from tertulia.cli.report import print_report
from tertulia.judge.hybrid import HybridConfig, describe_sources, run_hybrid
from tertulia.judge.meta import MetaConfig, describe_ratings, run_meta
from tertulia.judge.proxy import ProxyConfig, run_proxy
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.runs import check_out


@command(MetaConfig)
def meta(settings: MetaConfig, *, as_json: bool) -> None:
    """Correlate metrics and judges with people's ratings of replies, conversations and systems, and show agreement."""
    check_out(settings.out)
    with Bars() as bars:
        run = run_meta(settings, bars)
        bars.step("Reporting")
        if settings.out:
            report = save_judged(run, settings.out, data=describe_ratings(settings))
        else:
            report = report_run(run, plots=False)
    print_report(report, as_json=as_json)


@command(HybridConfig)
def hybrid(settings: HybridConfig, *, as_json: bool) -> None:
    """Fit a combination of metrics to people's ratings, leaving each bot out, and apply it to self-play."""
    check_out(settings.out)
    with Bars() as bars:
        run = run_hybrid(settings, bars)
        bars.step("Reporting")
        sources = describe_sources(settings)
        report = save_judged(run, settings.out, data=sources) if settings.out else report_run(run, plots=False)
    print_report(report, as_json=as_json)


@command(ProxyConfig)
def proxy(settings: ProxyConfig, *, as_json: bool) -> None:
    """Measure how much of the differences between bots in people's eyes a metric explains (SSA and perplexity)."""
    check_out(settings.out)
    run = run_proxy(settings)
    print_report(save_judged(run, settings.out) if settings.out else report_run(run, plots=False), as_json=as_json)
