"""The registry of corpus formats. A row names a `Reader` or `TextReader`; plugins add rows as `tertulia.readers`."""

from tertulia.core.registry import Registry

READERS = Registry("format", "tertulia.readers", requires=("recognises", "decode", "holds", "endings"))
_ROWS = {
    "begin-v1": ("begin:READER_V1", "BEGIN, first release: exchanges with five labels, TSV"),
    "begin-v2": ("begin:READER_V2", "BEGIN, second release: exchanges with three labels, TSV"),
    "blended-skill-talk": ("blended_skill_talk:READER", "BlendedSkillTalk, JSON"),
    "cmu-dog": ("cmu_dog:READER", "CMU-DoG with its documents as evidence: JSON, or the original folder"),
    "convokit": ("convokit:READER", "a ConvoKit corpus: a folder with utterances.jsonl"),
    "dailydialog": ("dailydialog:READER", "DailyDialog, JSON"),
    "dailydialog-text": ("dailydialog:TEXT", "DailyDialog's original text, one dialogue per line with __eou__"),
    "empathetic": ("empathetic:READER", "EmpatheticDialogues, JSON"),
    "empathetic-csv": ("empathetic:CSV", "EmpatheticDialogues' original CSV, one utterance per row"),
    "exchanges": ("native:EXCHANGES", "Tertulia's own exchanges (a reply with its context), JSON"),
    "messages": ("messages:READER", "OpenAI `messages`, JSON"),
    "parlai": ("parlai:READER", "ParlAI's dialogue format, text:...TAB labels:...TAB episode_done:True"),
    "personachat": ("personachat:READER", "Persona-Chat, JSON"),
    "personachat-text": ("numbered:READER", "Persona-Chat and ConvAI2 as ParlAI's numbered text"),
    "sharegpt": ("sharegpt:READER", "ShareGPT `conversations`, JSON"),
    "tertulia": ("native:READER", "Tertulia's own dialogues, JSON"),
    "topical-chat": ("topical_chat:READER", "Topical-Chat with its reading sets as evidence, JSON"),
    "ubuntu": ("ubuntu:READER", "Ubuntu Dialogue Corpus, dialogueText.csv: one chat line per row"),
    "ubuntu-pairs": ("ubuntu_pairs:PAIRS", "Ubuntu Dialogue Corpus: contexts with a true or false reply, CSV"),
    "ubuntu-ranking": (
        "ubuntu_pairs:RANKING",
        "Ubuntu Dialogue Corpus: contexts with the true reply and distractors, CSV",
    ),
    "ubuntu-tsv": ("ubuntu:FILES", "Ubuntu Dialogue Corpus, one dialogue per file: the original folder"),
    "wizard": ("wizard:READER", "Wizard of Wikipedia with its passages as evidence, JSON"),
}
for _name, (_target, _summary) in _ROWS.items():
    READERS.add(_name, f"tertulia.corpus.readers.{_target}", _summary)
