"""`tertulia export RUN --merged FOLDER`: a fine-tuned run as a plain Hugging Face model."""

from tertulia.cli.command import command
from tertulia.cli.output import Bars, out, print_json
from tertulia.models.export import ExportConfig, export_run


@command(ExportConfig)
def export(settings: ExportConfig, *, as_json: bool) -> None:
    """Write a fine-tuned model for other programs: its weights merged into the base, with tokenizer and template."""
    with Bars() as bars:
        bars.step(f"Merging {settings.run}")
        result = export_run(settings)
    if as_json:
        print_json({"folder": str(result.folder), "files": result.files, "bytes": result.size})
        return
    out.print(f"{result.folder}: {', '.join(result.files)} ({result.size / 1e6:.0f} MB)", markup=False)
    out.print(f"Talk to it with: tertulia chat hf:{result.folder}", markup=False)
