"""What ``columns`` of a source may name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kosmos.data.sources import choice_columns
from kosmos.data.sources.forms import LETTERS
from kosmos.data.sources.layouts import ROLES
from kosmos.data.sources.preferences import CHOSEN, REJECTED
from kosmos.data.sources.right_answers import REFERENCES, reference_roles
from kosmos.data.sources.splits import GROUP
from kosmos.data.sources.weights import WEIGHT
from kosmos.errors import ConfigError
from kosmos.names import did_you_mean, listed


def check_roles(columns: Mapping[str, str], modalities: Sequence[str], *, choices: bool) -> None:
    """Raises ConfigError where a key of ``columns`` is neither a role nor one of the modalities.

    Args:
        choices: whether the rows are questions that offer several answers, which have roles of their own.
    """
    own = choice_columns.ROLES if choices else (*ROLES, CHOSEN, REJECTED, GROUP, REFERENCES, WEIGHT)
    several = () if choices else reference_roles(columns)
    roles = (*modalities, *own)
    for role, column in columns.items():
        if role not in roles and role not in several:
            turned = f"the role comes first: {column}: {role}" if column in roles else did_you_mean(role, roles)
            told = [name for name in sorted(roles) if name not in LETTERS[2:]]
            there = f"there are: {listed(told, at_most=len(told))}"  # none of them stands anywhere else
            raise ConfigError(f"columns.{role}: no modality and no role; {turned or there}")
