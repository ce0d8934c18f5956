"""Rows in groups: columns are matched by name, and rows keep their names and their order."""

import numpy as np
import pandas as pd
import pytest

import lvsearch as lv

FIRST = pd.DataFrame({"h": [1.0, 2.0], "w": [10.0, 20.0]})
TURNED = pd.DataFrame({"w": [30.0], "h": [3.0]})


def test_data_frames_are_matched_by_name():
    groups = lv.Groups.from_arrays([FIRST, [], TURNED])
    assert groups.columns == ("h", "w")
    assert groups.rows.values.tolist() == [[1, 10], [2, 20], [3, 30]]
    assert groups.sizes.tolist() == [2, 0, 1]
    assert groups.rows.row_names is None
    assert lv.Groups.from_arrays([FIRST, TURNED], columns=["x", "y"]).columns == ("x", "y")
    with pytest.raises(ValueError, match=r"got the columns 'h', 'v' in group 1; expected 'h', 'w'"):
        lv.Groups.from_arrays([FIRST, FIRST.rename(columns={"w": "v"})])
    with pytest.raises(ValueError, match=r"got ndarray as group 1 among data frames"):
        lv.Groups.from_arrays([FIRST, FIRST.to_numpy()])


def test_new_groups_are_compared_by_name():
    training = lv.Groups.from_arrays([FIRST])
    assert training.like_this(iter([FIRST.to_numpy()])).columns == ("h", "w")
    with pytest.raises(ValueError, match="in another order"):
        training.like_this([TURNED])


def test_regions_of_images_are_matched_by_name():
    paired = lv.PairedCorpus.from_arrays([FIRST, TURNED], [["sky"], ["sea"]])
    assert paired.region_names == ("h", "w")
    assert paired.regions.tolist() == [[1, 10], [2, 20], [3, 30]]
    assert paired.like_this(([FIRST], None)).region_names == ("h", "w")
    with pytest.raises(ValueError, match="or these in another order"):
        paired.like_this(([TURNED], None))
    with pytest.raises(ValueError, match="in image 1"):
        lv.PairedCorpus.from_arrays([FIRST, TURNED[["h"]]], [["sky"], ["sea"]])


def test_rows_of_a_frame_keep_their_names():
    frame = pd.DataFrame({"school": ["a", "b", "a"], "score": [1.0, 2.0, 3.0]})
    groups = lv.Groups.from_frame(frame, group="school")
    assert groups.rows.values[:, 0].tolist() == [1, 3, 2]
    assert groups.rows.row_names == ("0", "2", "1")
    assert groups.notes == ("rows were put together by group; their names are those of the data frame's index",)
    together = lv.Groups.from_frame(frame.iloc[[0, 2, 1]].set_axis(["p", "q", "r"]), group="school")
    assert (together.rows.row_names, together.notes) == (("p", "q", "r"), ())
    with pytest.raises(ValueError, match="got the column 'school' twice"):
        lv.Groups.from_frame(frame.assign(other=np.arange(3)).set_axis(["school", "x", "school"], axis=1), "school")
