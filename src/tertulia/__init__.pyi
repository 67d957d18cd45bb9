from tertulia.api import ChatBot as ChatBot
from tertulia.api import ChatSession as ChatSession
from tertulia.api import TrainedRun as TrainedRun
from tertulia.api import Verdict as Verdict
from tertulia.api import bot as bot
from tertulia.api import judge as judge
from tertulia.api import load as load
from tertulia.api import train as train
from tertulia.core.dialogue import Dialogue as Dialogue
from tertulia.core.dialogue import Persona as Persona
from tertulia.core.dialogue import Turn as Turn
from tertulia.core.errors import TertuliaError as TertuliaError
from tertulia.core.estimate import Estimate as Estimate
from tertulia.core.reply import Reply as Reply

__version__: str
