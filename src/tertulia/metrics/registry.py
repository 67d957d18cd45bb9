"""The one door for metrics: a name, a row "module:ATTRIBUTE", and behind it a `Metric` or a `MetricFamily`.

Plugins add rows through the entry-point group `tertulia.metrics`. In the name of a row a capital K, M or N that stands
alone (or beside `in`) is a number: `hits@K` is the row of hits@1, hits@2 and so on.
"""

import re

from tertulia.core.errors import UnknownName, UsageError
from tertulia.core.registry import Registry
from tertulia.metrics.metric import Metric, MetricFamily, Unit

METRICS = Registry("metric", "tertulia.metrics", requires=("name",))

_RANKING = "tertulia.metrics.ranking:"
METRICS.add("hits@K", _RANKING + "HITS", "share of true replies ranked among the first K")
METRICS.add("recall@K", _RANKING + "RECALL", "the same as hits@K, by the name the Ubuntu corpus uses")
METRICS.add("hits@KinM", _RANKING + "HITS_AMONG", "hits@K over M of the candidates, averaged over all subsets")
METRICS.add("recall@KinM", _RANKING + "RECALL_AMONG", "recall@K over M of the candidates, averaged over all subsets")
METRICS.add("1inM", _RANKING + "ONE_IN", "short for recall@1inM")
METRICS.add("mrr", _RANKING + "MRR", "mean reciprocal rank of the true reply")
METRICS.add("error rate", _RANKING + "ERROR_RATE", "share of cases where the true candidate is not ranked first")

METRICS.add("f1", "tertulia.metrics.overlap:F1", "overlap of the words of a reply and its reference")
METRICS.add("bleu-N", "tertulia.metrics.bleu:BLEU", "BLEU of single replies, with n-grams of up to N tokens")
METRICS.add("rouge-l", "tertulia.metrics.overlap:ROUGE_L", "F1 of the longest common subsequence of words")
_DIVERSITY = "tertulia.metrics.diversity:"
METRICS.add("distinct-N", _DIVERSITY + "DISTINCT", "share of different n-grams among all n-grams of the replies")
METRICS.add("distinct replies", _DIVERSITY + "DISTINCT_REPLIES", "share of different replies among all replies")
METRICS.add("entropy-N", _DIVERSITY + "ENTROPY", "entropy of the n-grams of all replies, in nats")
_REPETITION = "tertulia.metrics.repetition:"
METRICS.add("seq-rep-N", _REPETITION + "SEQ_REP", "share of n-grams that a reply repeats from itself")
METRICS.add("context-rep-N", _REPETITION + "CONTEXT_REP", "share of n-grams of a reply that stand in an earlier turn")
_EMBEDDINGS = "tertulia.metrics.embeddings:"
METRICS.add("embedding average", _EMBEDDINGS + "AVERAGE", "cosine of the mean word vectors of reply and reference")
METRICS.add("embedding extrema", _EMBEDDINGS + "EXTREMA", "cosine of the most extreme values of the word vectors")
METRICS.add("embedding greedy", _EMBEDDINGS + "GREEDY", "mean best cosine of each word with a word of the other text")

_CONVERSATION = "tertulia.metrics.conversation:"
METRICS.add("sentiment", _CONVERSATION + "SENTIMENT", "sentiment of the user's next utterances")
METRICS.add("sentiment coherence", _CONVERSATION + "SENTIMENT_COHERENCE", "cosine of the emotions of user and reply")
METRICS.add("sentiment transition", _CONVERSATION + "SENTIMENT_TRANSITION", "change of the user's sentiment")
METRICS.add("sentiment min-max", _CONVERSATION + "SENTIMENT_MIN_MAX", "slope between lowest and highest sentiment")
METRICS.add("laughter", _CONVERSATION + "LAUGHTER", "laughs in the user's next utterances")
METRICS.add("laughter (literal)", _CONVERSATION + "LAUGHTER_LITERAL", 'letters "ha" in the user\'s next utterances')
METRICS.add("words elicited", _CONVERSATION + "WORDS_ELICITED", "words of the user's next utterances")
METRICS.add("semantic coherence", _CONVERSATION + "SEMANTIC_COHERENCE", "cosine of sentence vectors, user and reply")
METRICS.add(
    "word coherence average", _CONVERSATION + "WORD_COHERENCE_AVERAGE", "average of word vectors, user and reply"
)
METRICS.add(
    "word coherence extrema", _CONVERSATION + "WORD_COHERENCE_EXTREMA", "extrema of word vectors, user and reply"
)
METRICS.add("word coherence greedy", _CONVERSATION + "WORD_COHERENCE_GREEDY", "greedy matching, user and reply")
METRICS.add("question score", _CONVERSATION + "QUESTION_SCORE", "question marks and question words in replies")
METRICS.add("turns", _CONVERSATION + "TURNS", "turns of a conversation")
METRICS.add("words per turn", _CONVERSATION + "WORDS_PER_TURN", "words of the judged turns")
METRICS.add("loop", _REPETITION + "LOOP", "share of conversations that go in circles")
METRICS.add("self-repetition", _REPETITION + "SELF_REPETITION", "share of bigrams from a speaker's earlier turns")
METRICS.add("parroting", _REPETITION + "PARROTING", "share of bigrams from the partner's last turn")
_RUNS = "tertulia.metrics.shared_runs:"
METRICS.add("shared run of N turns", _RUNS + "SHARED", "share of pairs of conversations with an identical run of turns")
METRICS.add("copied run of N turns", _RUNS + "COPIED", "share of conversations with a run of turns of the training set")

_LIKELIHOOD = "tertulia.metrics.likelihood:"
METRICS.add("perplexity", _LIKELIHOOD + "PERPLEXITY", "perplexity per word, whatever the model's tokens")
METRICS.add("perplexity per token", _LIKELIHOOD + "PERPLEXITY_PER_TOKEN", "perplexity per token of the model")
METRICS.add(
    "perplexity with spelling",
    _LIKELIHOOD + "PERPLEXITY_WITH_SPELLING",
    "perplexity per word, unknown words spelled by a model of characters",
)
METRICS.add("perplexity bound", _LIKELIHOOD + "PERPLEXITY_BOUND", "perplexity per word by the evidence lower bound")
METRICS.add("KL", _LIKELIHOOD + "KL", "KL divergence between posterior and prior, in nats per word")
METRICS.add("log-probability per token", _LIKELIHOOD + "LOGPROB", "of a generated reply, under the model itself")
METRICS.add("words per reply", _LIKELIHOOD + "LENGTH", "length of a generated reply")
METRICS.add("seconds per reply", _LIKELIHOOD + "SECONDS", "time to generate a reply on this machine")

_FOLLOW_UPS = "tertulia.metrics.follow_ups:"
METRICS.add("follow-up: overall", _FOLLOW_UPS + "OVERALL", "how unlikely complaints of any kind are after a reply")
for _aspect in "interesting engaging specific relevant correct sensible understandable fluent".split():
    METRICS.add(
        f"follow-up: {_aspect}", _FOLLOW_UPS + _aspect.upper(), f"how unlikely complaints are that it is not {_aspect}"
    )
_REFERENCE_FREE = "tertulia.metrics.reference_free:"
METRICS.add("reply likelihood", _REFERENCE_FREE + "LIKELIHOOD", "log-probability per token under a language model")
METRICS.add("reply likelihood gain", _REFERENCE_FREE + "LIKELIHOOD_GAIN", "what the context adds to it")
METRICS.add("relatedness", _REFERENCE_FREE + "RELATEDNESS", "a ranker's score of a reply for its context")
METRICS.add("specificity by idf", _REFERENCE_FREE + "IDF", "how rare the words of a reply are")
METRICS.add("genericness", _REFERENCE_FREE + "GENERIC", "similarity of a reply to replies that fit any context")
METRICS.add("contradicts persona", _REFERENCE_FREE + "CONTRADICTS", "whether a persona sentence contradicts a reply")
METRICS.add("entailed by persona", _REFERENCE_FREE + "ENTAILED", "whether a persona sentence entails a reply")
_CONSISTENCY = "tertulia.metrics.consistency:"
for _what in ("turns", "replies"):
    for _verb in ("contradicting", "neutral to", "entailed by"):
        for _premises in ("persona", "own turns"):
            _name = f"{_what} {_verb} {_premises}"
            METRICS.add(_name, _CONSISTENCY + _name.upper().replace(" ", "_"), f"share of {_name}")

_HUMAN = "tertulia.metrics.human:"
METRICS.add("sensibleness", _HUMAN + "SENSIBLENESS", "share of bot turns that make sense to people")
METRICS.add("specificity", _HUMAN + "SPECIFICITY", "share of bot turns that make sense and are specific")
METRICS.add("SSA", _HUMAN + "SSA", "mean of sensibleness and specificity")
METRICS.add("rating", _HUMAN + "RATING", "mean of people's ratings on a scale, by question")
METRICS.add("share of yes", _HUMAN + "YES", "share of people's answers that are yes, by question")
METRICS.add("vote balance", _HUMAN + "VOTES", "mean of up votes (1) and down votes (-1) on bot turns")
METRICS.add("wins", _HUMAN + "WINS", "share of votes for the subject against another one")
METRICS.add("ties", _HUMAN + "TIES", "share of votes for neither of two subjects")
METRICS.add(
    "persona detection", _HUMAN + "PERSONA_DETECTION", "share of chats after which people recognise the persona"
)
METRICS.add("BEGIN label", _HUMAN + "BEGIN_LABEL", "share of responses with each of BEGIN's five labels")
METRICS.add("cooperativeness", _HUMAN + "COOPERATIVENESS", "share of sentences that help the conversation along")

_CLASSIFICATION = "tertulia.metrics.classification:"
METRICS.add("label accuracy", _CLASSIFICATION + "ACCURACY", "share of responses whose label a classifier predicts")
METRICS.add("label precision", _CLASSIFICATION + "PRECISION", "share of the predictions of a label that are right")
METRICS.add("label recall", _CLASSIFICATION + "RECALL", "share of the responses of a label that are found")
METRICS.add("label F1", _CLASSIFICATION + "F1", "harmonic mean of precision and recall of a label")
METRICS.add("macro-F1", _CLASSIFICATION + "MACRO_F1", "mean F1 of the labels that occur")
METRICS.add("ROC-AUC", _CLASSIFICATION + "ROC_AUC", "how probably a supported response scores higher than another")
for _label in "entailment hallucination off-topic generic contradiction".split():
    METRICS.add(
        f"grounding: {_label}",
        f"tertulia.metrics.grounding:{_label.replace('-', '_').upper()}",
        f"share of replies that a classifier labels {_label}",
    )
METRICS.add(
    "grounding: attributable claims",
    "tertulia.metrics.grounding:CLAIMS",
    "share of supported replies among those that are not generic",
)

_JUDGE = "tertulia.metrics.judge_labels:"
METRICS.add("sensibleness (judge)", _JUDGE + "SENSIBLENESS", "share of turns that make sense to an automatic judge")
METRICS.add("specificity (judge)", _JUDGE + "SPECIFICITY", "share of sensible and specific turns by a judge")
METRICS.add("SSA (judge)", _JUDGE + "SSA", "mean of sensibleness and specificity by an automatic judge")
METRICS.add("rating (judge)", _JUDGE + "RATING", "mean rating by an automatic judge, by question")
METRICS.add("share of yes (judge)", _JUDGE + "YES", "share of yes by an automatic judge, by question")
METRICS.add("wins (judge)", _JUDGE + "WINS", "share of pairs that the subject wins in both orders, ties as half")
METRICS.add("first position (judge)", _JUDGE + "FIRST_POSITION", "share of a judge's votes for what is shown first")
METRICS.add("order agreement (judge)", _JUDGE + "ORDER_AGREEMENT", "share of pairs judged the same in both orders")
METRICS.add("unparsed (judge)", _JUDGE + "UNPARSED", "share of a judge's answers that cannot be read")
METRICS.add("accuracy (judge)", _JUDGE + "ACCURACY", "share of units where a judge says what most people say")
METRICS.add("bias (judge)", _JUDGE + "BIAS", "how much higher a judge rates than people do")
_POWERED, _HELPED = "tertulia.metrics.prediction_powered:", "with the help of an automatic judge"
METRICS.add("sensibleness (prediction-powered)", _POWERED + "SENSIBLENESS", f"sensibleness by people, {_HELPED}")
METRICS.add("specificity (prediction-powered)", _POWERED + "SPECIFICITY", f"specificity by people, {_HELPED}")
METRICS.add("SSA (prediction-powered)", _POWERED + "SSA", f"SSA by people, {_HELPED}")
METRICS.add("rating (prediction-powered)", _POWERED + "RATING", f"mean of people's ratings, {_HELPED}")
METRICS.add("share of yes (prediction-powered)", _POWERED + "YES", f"share of yes by people, {_HELPED}")
METRICS.add("wins (prediction-powered)", _POWERED + "WINS", f"share of people's votes for the subject, {_HELPED}")

_PLACEHOLDER = re.compile(r"(?<![A-Za-z])[KMN](?=in|[^A-Za-z]|$)|(?<=in)[KMN]$")


def metric_named(name: str) -> Metric:
    """The metric of that name, also of a family; an unknown name is an error that suggests close ones.

    >>> metric_named("recall@2in10").min_candidates
    10
    """
    if name in METRICS and not _PLACEHOLDER.search(name):
        return _checked(name, METRICS.get(name))
    for row in METRICS.rows():
        if numbers := _numbers(row.name, name):
            family = METRICS.get(row.name)
            if isinstance(family, MetricFamily) and (metric := family.make(name, *numbers)):
                return metric
    raise UnknownName("metric", name, [*METRICS, "hits@1", "hits@5", "recall@1", "distinct-2"])


def metrics_named(names: tuple[str, ...], *, unit: Unit, verb: str) -> list[Metric]:
    """The metrics of these names, each once; one of another unit is an error."""
    metrics = [metric_named(name) for name in dict.fromkeys(names)]
    for metric in metrics:
        if metric.unit != unit:
            raise UsageError(
                f"{metric.name!r} is a metric of {_plural(metric.unit)}; {verb} computes metrics of {_plural(unit)}.",
                hint="`tertulia metrics` lists all metrics with their units.",
            )
    return metrics


def example_name(row: str) -> str:
    """A metric of a family's row: the row's name with small numbers in it.

    >>> example_name("hits@KinM"), example_name("shared run of N turns"), example_name("KL")
    ('hits@1in10', 'shared run of 2 turns', 'KL')
    """
    return _PLACEHOLDER.sub(lambda match: {"K": "1", "M": "10", "N": "2"}[match.group()], row)


def _numbers(row: str, name: str) -> tuple[int, ...]:
    """The numbers in a name that belongs to a family's row; none if it does not belong to it.

    >>> _numbers("hits@KinM", "hits@1in10"), _numbers("hits@K", "hits@0"), _numbers("KL", "KL")
    ((1, 10), (), ())
    """
    parts = [re.escape(part) for part in _PLACEHOLDER.split(row)]
    match = re.fullmatch(r"([1-9]\d*)".join(parts), name) if len(parts) > 1 else None
    return tuple(int(number) for number in match.groups()) if match else ()


def _checked(name: str, metric: object) -> Metric:
    if not isinstance(metric, Metric):
        raise UsageError(f"The metric {name!r} is not a `tertulia.metrics.metric.Metric`, but {type(metric).__name__}.")
    if metric.name != name:
        raise UsageError(f"The metric registered as {name!r} calls itself {metric.name!r}: the names must agree.")
    return metric


def _plural(unit: Unit) -> str:
    return {"reply": "replies"}.get(unit, unit if unit.endswith("s") else f"{unit}s")
