"""The public names, each with the file that defines it: the package reads them here, and so do type checkers."""

from decentral_dp import graphs as graphs
from decentral_dp.api import (
    Job as Job,
)
from decentral_dp.api import (
    audit as audit,
)
from decentral_dp.api import (
    build as build,
)
from decentral_dp.api import (
    check as check,
)
from decentral_dp.api import (
    load as load,
)
from decentral_dp.api import (
    network_view as network_view,
)
from decentral_dp.api import (
    plan as plan,
)
from decentral_dp.api import (
    resume as resume,
)
from decentral_dp.api import (
    run as run,
)
from decentral_dp.api import (
    study as study,
)
from decentral_dp.api import (
    sweep as sweep,
)
from decentral_dp.central.tuner import tune as tune
from decentral_dp.config.schema import Scenario as Scenario
from decentral_dp.errors import InputError as InputError
from decentral_dp.files.trust import trusting as trusting
from decentral_dp.problems.bilevel.losses import from_losses as from_losses
from decentral_dp.reporting.comparison import compare as compare
from decentral_dp.simulation.budget import Budget as Budget
from decentral_dp.simulation.model import load_model as load_model
from decentral_dp.simulation.run import Run as Run
