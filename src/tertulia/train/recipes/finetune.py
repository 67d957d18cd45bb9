"""The recipe `finetune`: a Hugging Face causal model on dialogues; see docs/finetuning.md."""

from typing import Literal

from tertulia.core.dialogue import Json
from tertulia.core.progress import Progress
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.train.loop import fit
from tertulia.train.recipe import Recipe
from tertulia.train.runs import PARTIAL, TrainedModel, run_id, save_run, start_run
from tertulia.train.tasks.finetune import FinetuneConfig, FinetuneTask, read_data


class FinetuneRecipe(FinetuneConfig):
    """How a language model is fine-tuned."""

    recipe: Literal["finetune"] = "finetune"
    """The recipe's name, so that the config saved with a run can be trained again."""


def train(config: FinetuneRecipe, progress: Progress) -> TrainedModel:
    """Fine-tune and save the trained weights in `config.out`, which is a bot then."""
    start_run(config, progress)
    data = read_data(config)
    progress.step(f"Loading {config.base}")
    model = FinetunedGenerator.untrained(config.model, config.base)
    task = FinetuneTask(model, data, config)
    identity = run_id(config, [model.base.digest, *((view, view.evidence) for view in data.views)])
    outcome = fit(task, config, config.out / PARTIAL, progress, resume=config.resume, run_id=identity)
    about: dict[str, Json] = {
        "base": model.base.name,
        "base_digest": model.base.digest,
        "dialogues": data.dialogues,
        "examples": len(data.views),
        "valid_examples": len(data.valid),
    }
    model.eval()
    return save_run(task, config, outcome, about=about)


RECIPE = Recipe("finetune", FinetuneRecipe, train)
