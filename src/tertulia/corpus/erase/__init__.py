"""The right to be forgotten: remove a person's messages, and everything derived from them, from a mined corpus."""

from tertulia.corpus.erase.journal import RECORD as RECORD
from tertulia.corpus.erase.run import EraseConfig as EraseConfig
from tertulia.corpus.erase.run import Erased as Erased
from tertulia.corpus.erase.run import erase as erase
from tertulia.corpus.erase.run import erase_again as erase_again
from tertulia.corpus.erase.run import preview_erasure as preview_erasure
from tertulia.corpus.erase.run import verify as verify
from tertulia.corpus.erase.verification import Verification as Verification
