"""Responses per second of grounding classifiers on one thread: the packaged lexical model, and an encoder.

The responses are BEGIN's, with their evidence of one sentence (first release) or a document (second). Times are CPU
seconds of this process. Without `--run` the encoder is an untrained MiniLM of the recipe's shape: as fast as a trained
one.
"""

import argparse
import time
from pathlib import Path

import torch

from common import finish
from tertulia.core.grounding import LABELS, GroundingClassifier, GroundingInput
from tertulia.corpus.load import load_exchanges
from tertulia.models.classifiers.grounding import load_grounding
from tertulia.models.classifiers.grounding_models import EncoderClassifier, GroundingSettings
from tertulia.models.classifiers.pair_classifier import PairClassifier, PairClassifierConfig
from tertulia.train.recipes.grounding import grounding_input


def encoder(run: Path | None) -> GroundingClassifier:
    if run is not None:
        return EncoderClassifier(PairClassifier.load(run), GroundingSettings(kind="encoder"), name="encoder")
    model = PairClassifier.untrained(PairClassifierConfig(), LABELS).eval()
    return EncoderClassifier(model, GroundingSettings(kind="encoder"), name="encoder")


def speed(classifier: GroundingClassifier, inputs: list[GroundingInput]) -> float:
    classifier.probabilities(inputs[:2])
    start = time.process_time()
    classifier.probabilities(inputs)
    return len(inputs) / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/begin"), help="folder of BEGIN's dev files")
    parser.add_argument("--run", type=Path, default=None, help="the folder `encoder` of a trained run")
    parser.add_argument("--quick", action="store_true", help="fifty responses for the encoder, not two hundred")
    given = parser.parse_args()
    torch.set_num_threads(1)
    count = 50 if given.quick else 200
    figures = {}
    for file in ("v1_dev", "v2_dev_cmu"):
        inputs = [grounding_input(exchange) for exchange in load_exchanges(given.data / f"{file}.tsv")]
        for name, classifier, part in (
            ("lexical", load_grounding(), inputs),
            ("encoder", encoder(given.run), inputs[:count]),
        ):
            figures[f"{name}_{file}_per_second"] = speed(classifier, part)
            print(
                f"{name:<8} {file:<11} {figures[f'{name}_{file}_per_second']:8.1f} responses/s of CPU, n = {len(part)}"
            )
    finish("grounding_speed", figures, {"threads": 1})


if __name__ == "__main__":
    main()
