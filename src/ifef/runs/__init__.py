"""A run's folder: settings, environment, metrics, checkpoint, solution, report."""

from ifef.runs.environment import checkup as checkup
from ifef.runs.environment import version as version
from ifef.runs.folder import TRACEBACK as TRACEBACK
from ifef.runs.folder import RunConfig as RunConfig
from ifef.runs.folder import RunError as RunError
from ifef.runs.folder import configure as configure
from ifef.runs.folder import find as find
from ifef.runs.folder import next_step as next_step
from ifef.runs.session import Announce as Announce
from ifef.runs.session import Outcome as Outcome
from ifef.runs.session import outcome_text as outcome_text
from ifef.runs.session import resume as resume
from ifef.runs.session import show as show
from ifef.runs.session import solution_of as solution_of
from ifef.runs.session import start as start
from ifef.runs.source import Source as Source
from ifef.runs.source import blame as blame
from ifef.runs.source import catalogue as catalogue
from ifef.runs.source import find_source as find_source
from ifef.runs.source import one_line as one_line
