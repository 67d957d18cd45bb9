"""How fast a folder of 1,000 texts is indexed and searched, and whether the right text is among what is retrieved.

    python benchmarks/retrieval.py --data ../shared/data/cmu_dog --fillers ../shared/data/topical_chat [--quick]

The folder has the sections of CMU-DoG's documents, and conversations of another corpus as fillers. Queries are turns of
the valid split; the section that was open when the next turn was written is the right one. Many turns are small talk or
about the film as a whole, so nothing can find the section every time: the figures compare searching by words alone with
words and vectors. Times are CPU time of one process; of indexing, with an empty cache, with a full one, and after one
file has changed. Intervals: 95 %, by bootstrap over dialogues. The query of the vectors (the last three turns) was
chosen on these same turns, so their figures flatter a little.
"""

import argparse
import os
import random
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from common import finish, percentile
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus.load import load_dialogues
from tertulia.metrics.significance import bootstrap_means
from tertulia.talk.retrieval import PassageIndex, SearchMethod

FILLER_TURNS = 8
MIN_CONTEXT = 4
COUNT = 3


def write_texts(folder: Path, data: Path, fillers: Path, count: int) -> None:
    """Sections as NUMBER-FILM.txt, then fillers until there are enough."""
    sections = {e.id: e for split in ("train", "valid") for d in load_dialogues(data, split=split) for e in d.evidence}
    for identity, section in sections.items():
        name = f"{identity.replace('/', '-')}.txt"
        (folder / name).write_text(f"# {section.source}\n\n{section.text}", encoding="utf-8")
    for number, dialogue in enumerate(islice(load_dialogues(fillers), count - len(sections))):
        text = "\n".join(turn.text for turn in dialogue.turns[:FILLER_TURNS])
        (folder / f"filler-{number}.txt").write_text(text, encoding="utf-8")


def timed_index(folder: Path, search: SearchMethod) -> tuple[PassageIndex, float]:
    start = time.process_time()
    index = PassageIndex.of(folder, search=search)
    return index, time.process_time() - start


def queries(data: Path, count: int, seed: int) -> list[tuple[str, tuple[Turn, ...], str]]:
    """Dialogue id, the last turns, and the name of the right file; at most three queries of a dialogue."""
    chosen = []
    for dialogue in load_dialogues(data, split="valid"):
        rng = random.Random(f"{seed} {dialogue.id}")
        indices = [i for i in range(MIN_CONTEXT, len(dialogue.turns)) if _section(dialogue, i)]
        for i in rng.sample(indices, min(3, len(indices))):
            chosen.append((dialogue.id, dialogue.turns[i - 3 : i], _section(dialogue, i)))
    random.Random(seed).shuffle(chosen)
    return chosen[:count]


def _section(dialogue: Dialogue, i: int) -> str:
    end = f"/{dialogue.turns[i].meta.get('docIdx')}"
    return next((e.id.replace("/", "-") + ".txt" for e in dialogue.evidence if e.id.endswith(end)), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cmu_dog"))
    parser.add_argument("--fillers", type=Path, default=Path("../shared/data/topical_chat"))
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a fifth of the texts, 30 queries")
    given = parser.parse_args()
    texts, count = (given.texts // 5, 30) if given.quick else (given.texts, given.queries)
    asked = queries(given.data, count, given.seed)
    figures: dict[str, float] = {"queries": len(asked)}
    columns: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "texts"
        folder.mkdir()
        os.environ["TERTULIA_CACHE"] = str(Path(root) / "cache")
        write_texts(folder, given.data, given.fillers, texts)
        figures["texts"] = len(list(folder.iterdir()))
        methods: tuple[SearchMethod, ...] = ("words", "hybrid")
        for method in methods:
            index, seconds = timed_index(folder, method)
            figures |= {f"index_cpu_seconds_{method}": seconds, "passages": len(index)}
            times = []
            for _, turns, right in asked:
                start = time.process_time()
                files = [passage.source.rpartition("#")[0] for passage in index.search(turns, COUNT)]
                times.append(time.process_time() - start)
                columns.setdefault(f"{method}: any", []).append(float(bool(files)))
                columns.setdefault(f"{method}: film", []).append(
                    float(any(file.split("-")[0] == right.split("-")[0] for file in files))
                )
                columns.setdefault(f"{method}: section", []).append(float(right in files))
            figures[f"search_cpu_ms_{method}"] = 1000 * percentile(times, 0.5)
        figures["index_cpu_seconds_cached"] = timed_index(folder, "hybrid")[1]
        (folder / "filler-0.txt").write_text("Another text.", encoding="utf-8")
        figures["index_cpu_seconds_one_changed"] = timed_index(folder, "hybrid")[1]
    print(
        f"{figures['texts']:.0f} texts, {figures['passages']:.0f} passages; {len(asked)} queries, {COUNT} passages each"
    )
    for name in [key for key in figures if "seconds" in key or "ms" in key]:
        print(f"  {name:<34} {figures[name]:.2f}")
    estimates = bootstrap_means(np.array(list(columns.values())).T, [identity for identity, _, _ in asked])
    for name, estimate in zip(columns, estimates, strict=True):
        print(f"  {name:<34} {estimate}")
        key = name.replace(": ", "_")
        figures |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
    settings = {"data": given.data.name, "fillers": given.fillers.name, "count": COUNT, "seed": given.seed}
    finish("retrieval", figures, settings)


if __name__ == "__main__":
    main()
