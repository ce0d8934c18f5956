"""A name that was changed still works, and warns."""

import pytest

from lvsearch.inference import evidence


def test_the_former_name_of_the_temperature_profile():
    with pytest.warns(DeprecationWarning, match="temperature_profile"):
        assert evidence.pace is evidence.temperature_profile
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = evidence.no_such_name
