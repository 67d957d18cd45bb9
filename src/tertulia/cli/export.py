"""`tertulia export RUN`: a fine-tuned run as a plain Hugging Face model, or as an adapter at half precision."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, out, print_json
from tertulia.models.export import ExportConfig, export_run


@command(ExportConfig)
def export(settings: ExportConfig, *, as_json: bool) -> None:
    """Write a fine-tuned model for others: merged into the base, with tokenizer and template, or the adapter alone."""
    with Bars() as bars:
        bars.step(f"{'Merging' if settings.merged else 'Rounding'} {settings.run}")
        result = export_run(settings)
    if as_json:
        print_json({"folder": str(result.folder), "files": result.files, "bytes": result.size})
        return
    out.print(f"{result.folder}: {', '.join(result.files)} ({result.size / 1e6:.1f} MB)", markup=False)
    out.print(f"Talk to it with: tertulia chat {'hf:' if settings.merged else ''}{result.folder}", markup=False)
