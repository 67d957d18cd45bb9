"""Run the notebooks, and turn them into pages. `python docs/notebooks.py` stores new outputs.

A notebook is run as a plain program: its code cells in order in one namespace, without a Jupyter kernel. The
notebooks need nothing that a kernel adds, a kernel would bring some thirty packages and open ports, and an error
keeps its own traceback. What a cell prints and the value of its last line are stored as Jupyter stores them, so any
viewer shows the file.
"""

import ast
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"
Cell = dict[str, Any]


def run(path: Path) -> Cell:
    """The notebook with the outputs of a new run. The current folder is the notebook's working folder."""
    notebook: Cell = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for number, cell in enumerate(code, 1):
        cell["execution_count"] = number
        cell["outputs"] = _run_cell("".join(cell["source"]), namespace, f"{path.name}, cell {number}", number)
    return notebook


def _run_cell(source: str, namespace: dict[str, Any], name: str, number: int) -> list[Cell]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(tree, name, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None
    outputs: list[Cell] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {kind: text.splitlines(keepends=True) for kind, text in _representations(value).items()}
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def _representations(value: object) -> dict[str, str]:
    """What Jupyter would store of a value: the formats that it knows itself to be shown in, and its plain text."""
    if bundle := getattr(value, "_repr_mimebundle_", None):
        made = bundle()
        return dict(made[0] if isinstance(made, tuple) else made)
    if html := getattr(value, "_repr_html_", None):
        return {"text/html": html(), "text/plain": repr(value)}
    return {"text/plain": repr(value)}


def to_markdown(path: Path) -> str:
    """A notebook as a page of the site: text, code and stored outputs."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := _shown(output))]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n[Download the notebook]({path.name}){{download}}\n\n{rest}\n"


def _shown(output: Cell) -> str:
    if output["output_type"] == "stream":
        return "```text\n" + "".join(output["text"]).rstrip("\n") + "\n```"
    data = {kind: "".join(text) for kind, text in output["data"].items()}
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            # One line: a blank line would end the block of HTML for the Markdown parser.
            return f'<div class="output">{" ".join(data[kind].split())}</div>'
    return f"```text\n{data['text/plain']}\n```"


def main() -> None:
    """Run all notebooks, or those that are named, and store their outputs."""
    chosen = [FOLDER / name for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    for path in chosen:
        text = json.dumps(run(path), ensure_ascii=False, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: outputs stored")


if __name__ == "__main__":
    main()
