"""HDP mixtures of groups of rows: the bound against enumeration and the generic engine, and what `lv.fit` gives."""

import dataclasses
from functools import cache
from itertools import pairwise
from typing import Any

import hdp_oracles
import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pandas as pd
import pytest
from scipy.special import betaln, logsumexp

import lvsearch as lv
from lvsearch.fitted.stored_fits import decode_module, encode_module
from lvsearch.inference.data.rows import groups_of_rows
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.engine.estimate import beliefs_of, capacity_of, cut_axes, pad_axes
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.engine.meanfield import Beliefs, batch_bound, cast, globals_bound
from lvsearch.inference.hdp import GroupsEstimator, GroupSettings, group_predictive_log_density
from lvsearch.inference.hdp.ascent import Units, ascend_units
from lvsearch.inference.hdp.kernel import TablePosterior, log_weights_of, stick_logs
from lvsearch.inference.hdp.units import Packed, bound_at, contents_of, globals_of, packed_alone, seat_largest
from lvsearch.inference.mixtures import MixtureSettings
from lvsearch.models.families import BetaStatistics, GammaStatistics
from lvsearch.models.hdp import HDPMixture
from lvsearch.models.hyperpriors import GammaPrior

PRIORS = GammaPrior(2.0, 1.5), GammaPrior(3.0, 2.0)
SIZES = (3, 0, 1, 2)
CAPACITY = capacity_of((4,))


def data_of(rows: np.ndarray, sizes: tuple[int, ...]) -> Any:
    return groups_of_rows(np.nan_to_num(rows), ~np.isnan(rows), np.array(sizes))


class Fit:
    """The kernel on tiny groups, in float64."""

    def __init__(self, model: HDPMixture, rows: np.ndarray, sizes: tuple[int, ...]):
        self.model, self.data = model, data_of(rows, sizes)
        self.packed: Packed = packed_alone(model, self.data)[0]
        self.n_dims = rows.shape[1]

    def blank(self, size: int) -> Beliefs:
        """Components at their prior, sticks as the prior at γ = 1; concentrations at their prior's mean."""
        one = self.model.components.prior(self.n_dims)
        natural: dict[str, Any] = {
            "components": jax.tree.map(lambda leaf: np.broadcast_to(leaf, (size, *np.shape(leaf))), one),
            "shared_sticks": BetaStatistics(jnp.zeros(size), jnp.zeros(size)),
        }
        for level in self.model.levels:
            prior = self.model.concentration_of(level)
            if isinstance(prior, GammaPrior):
                natural[level.concentration] = GammaStatistics(jnp.asarray(prior.shape - 1), jnp.asarray(prior.rate))
        natural = {name: natural[name] for name in self.model.globals()}
        return beliefs_of(self.model, pad_axes(self.model, natural, (size,), CAPACITY), (size,), capacity=CAPACITY)

    def seats(self, size: int) -> TablePosterior:
        rng = np.random.default_rng(0)
        counts = rng.dirichlet(np.ones(size), self.packed.real.shape) * self.packed.lengths[..., None]
        seating = seat_largest(counts, CAPACITY[0], self.model.tables, 1.0)
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), seating)

    def climb(self, beliefs: Beliefs, seating: TablePosterior, size: int, passes: int = 1000) -> AscentTrace:
        tiles = jax.tree.map(
            lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, self.packed.documents.tiles
        )
        units = Units(tiles, self.packed.real, self.packed.members)
        return ascend_units(self.model, beliefs, seating, units, (size,), 1e-12, passes, 2, capacity=CAPACITY)


# ── the bound ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_bound_is_exact_where_nothing_is_approximate(float64):
    """One component, one table: given that everything is there, the posterior factorises, so that the bound is
    log p(rows, all tables and rows at the first); every constant and the leftover mass of both levels are in it."""
    kind, gamma, alpha, sizes = cases.KNOWN, 0.7, 1.5, np.array(SIZES)
    rows = kind.rows[: sizes.sum()]
    fit = Fit(HDPMixture(kind.component, gamma, alpha, tables=1), rows, SIZES)
    found = fit.climb(fit.blank(1), fit.seats(1), 1, passes=4)
    truth = (betaln(1 + sizes, alpha) - betaln(1, alpha)).sum()  # E[π'^n] under Beta(1, α), group by group
    truth += betaln(1 + len(sizes), gamma) - betaln(1, gamma) + kind.log_marginal(rows)
    assert found.bounds[int(found.sweeps) - 1] == pytest.approx(truth, abs=1e-9)


@pytest.mark.thorough
def test_the_bound_is_below_the_process_and_rises_with_truncation(float64):
    """An empty group, one of one row, missing cells. Each truncation goes on from the one before: an added component
    that has its prior as q changes nothing, so that the bound can only rise."""
    kind, gamma, alpha = cases.DIAGONAL, 0.7, 0.9
    rows = kind.rows[: sum(SIZES)]
    likelihood = hdp_oracles.row_likelihood(rows, kind.log_marginal)
    known = hdp_oracles.known
    exact = logsumexp(list(hdp_oracles.posterior_of(SIZES, likelihood, known(gamma), known(alpha)).values()))
    fit = Fit(HDPMixture(kind.component, gamma, alpha, tables=3), rows, SIZES)
    found, bounds = fit.climb(fit.blank(1), fit.seats(1), 1), []
    for size in (1, 2, 3, 4):
        if size > 1:
            blank = jax.tree.map(np.asarray, fit.blank(size))
            kept = np.arange(CAPACITY[0]) < size - 1

            def old(new: Any, was: Any, kept: Any = kept) -> Any:
                was = np.asarray(was)
                return np.where(kept.reshape(-1, *[1] * (was.ndim - 1)), was, new)

            beliefs = jax.tree.map(old, blank, found.beliefs)
            found = fit.climb(Beliefs(*beliefs), found.locals, size)
        trace = np.asarray(found.bounds)[: int(found.sweeps)]
        assert np.diff(trace).min() > -1e-10
        bounds.append(trace[-1])
    assert max(bounds) < exact
    assert np.diff(bounds).min() > -1e-9
    assert bounds[-1] > bounds[0] + 1e-3


@cache
def climbed() -> tuple[Fit, AscentTrace]:
    """Three components for six rows, both concentrations inferred."""
    with jax.enable_x64(True):
        fit = Fit(HDPMixture(cases.DIAGONAL.component, *PRIORS, tables=3), cases.DIAGONAL.rows[:6], (2, 2, 2))
        return fit, fit.climb(fit.blank(3), fit.seats(3), 3)


def generic_locals(fit: Fit, found: AscentTrace, size: int) -> dict[str, Any]:
    """q of every group as the generic engine has it: (natural, mean) from pointers, sticks and best tables."""
    documents = fit.packed.documents
    pointers, hits, passes = (documents.gather(np.asarray(leaf)) for leaf in found.locals)
    seen, _ = globals_of(fit.model, found.beliefs.mean, fit.packed.members, (size,), capacity=CAPACITY)
    counts = contents_of(fit.model, fit.data).counts
    log_value, log_left = (np.asarray(x) for x in stick_logs(hits, passes))
    weights = np.asarray(log_weights_of(log_value, log_left))
    per_group = [np.asarray(seen.log_topics)[counts.indices[a:b]] for a, b in pairwise(counts.indptr)]
    table = np.stack([rows @ p.T + w for rows, p, w in zip(per_group, pointers, weights, strict=True)])
    return {
        "pointer": np.log(np.maximum(pointers, 1e-300)),
        "table": table,
        "group_sticks": BetaStatistics(jnp.asarray(hits - 1), jnp.asarray(passes - 1)),
    }


@pytest.mark.thorough
def test_the_end_is_the_generic_engine_s(float64):
    """The same number, and every natural parameter is the gradient of the log-joint."""
    fit, found = climbed()
    model, size = fit.model, 3
    (batch,) = cast(fit.data, np.float64).batches
    ids = fit.data.unit_ids[0]
    on = model.active((size,), CAPACITY)

    def padded(leaf: np.ndarray) -> np.ndarray:
        out = np.zeros((len(ids), *leaf.shape[1:]))
        out[ids >= 0] = leaf[ids[ids >= 0]]
        return out

    natural = jax.tree.map(lambda leaf: jnp.asarray(padded(leaf)), generic_locals(fit, found, size))
    sites = model.locals()

    @jax.jit
    def means(natural: Any) -> Any:
        return {name: site.family.mean(natural[name], site.event_mask(on)) for name, site in sites.items()}

    mean = means(natural)
    l = Beliefs(natural, mean)
    total = float(globals_bound(model, found.beliefs, (size,), capacity=CAPACITY))
    total += float(batch_bound(model, found.beliefs.mean, batch, l, (size,), capacity=CAPACITY) @ batch.weight)
    assert total == pytest.approx(float(found.bounds[int(found.sweeps) - 1]), abs=1e-6)
    cut = cut_axes(model, found.beliefs.natural, (size,), CAPACITY)
    seating = jax.tree.map(np.asarray, found.locals)
    assert total == pytest.approx(bound_at(model, cut, (size,), fit.packed, seating, 0)[0], abs=1e-6)

    def log_joint(g: Any, lu: Any) -> Any:
        per_unit = jax.vmap(lambda unit, one: model.log_unit(g, one, unit, on))(batch.units, lu)
        return model.log_prior(g, on) + (batch.weight * per_unit).sum()

    by_globals, by_locals = jax.jit(jax.grad(log_joint, argnums=(0, 1)))(found.beliefs.mean, l.mean)
    for name, eta in found.beliefs.natural.items():
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), by_globals[name], eta)
    real = np.asarray(batch.weight) > 0
    again = means(by_locals)
    for name in sites:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(np.asarray(a)[real], np.asarray(b)[real], atol=2e-5),
            again[name],
            mean[name],
        )


# ── what people get ─────────────────────────────────────────────────────────────────────────────────────────────────

CENTRES = np.array([[0.0, 0.0], [4.0, 1.0], [-3.0, 3.0]])
USES = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
N_EACH = (9, 14, 1, 16, 0)


@cache
def planted() -> tuple[lv.Groups, np.ndarray]:
    rng = np.random.default_rng(4)
    labels = [rng.choice(3, n, p=p) for n, p in zip(N_EACH, USES, strict=True)]
    matrices = [CENTRES[z] + 0.4 * rng.standard_normal((len(z), 2)) for z in labels]
    names = [f"school {number}" for number in range(5)]
    return lv.Groups.from_arrays(matrices, columns=["maths", "art"], names=names), np.concatenate(labels)


@cache
def model() -> lv.FittedModel:
    groups, _ = planted()
    return lv.fit(HDPMixture(lv.models.DiagonalComponents.scaled_to(groups.rows.values), tables=4), groups, size=6)


@pytest.mark.thorough
def test_shared_clusters_are_found_in_every_group():
    groups, truth = planted()
    found = model()
    table = found.occupied_under_fit(draws=200)
    assert table.loc[table.probability.idxmax(), "size"] == 3
    shares = found.transform(groups)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    counts = np.stack([np.bincount(truth[groups.owners == j], minlength=3) for j in range(5)])
    found_counts = np.sort(shares[:4], axis=1)[:, -3:] * counts[:4].sum(1, keepdims=True)
    np.testing.assert_allclose(found_counts, np.sort(counts[:4], axis=1), atol=1.0)
    weights, left = found.model.expected_weights(found.estimate.natural)  # pyright: ignore
    assert weights.sum() + left == pytest.approx(1)
    np.testing.assert_allclose(shares[4] * (1 - left), weights, atol=1e-3)  # an empty group has the shared weights


@pytest.mark.thorough
def test_held_out_groups_are_scored():
    """A group like the training groups above one far from all; a group with no rows says nothing."""
    rng = np.random.default_rng(0)
    near = CENTRES[[0, 0, 1, 1]] + 0.4 * rng.standard_normal((4, 2))
    scores = model().score_units([near, near + 40, []])
    assert scores[0] > scores[1] + 50
    assert scores[2] == pytest.approx(0, abs=1e-6)
    assert np.all(np.isfinite(scores))


@pytest.mark.thorough
def test_predictive_density_integrates_to_one_and_knows_the_group():
    found, (groups, _) = model(), planted()
    side = np.linspace(-40, 40, 321)
    grid = lv.Points.from_array(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)).dataset()
    first = group_predictive_log_density(found.estimate, grid, groups.select([0]).dataset())
    anyone = group_predictive_log_density(found.estimate, grid)
    for density in (first, anyone):
        assert np.exp(density).sum() * (side[1] - side[0]) ** 2 == pytest.approx(1, abs=0.02)
    at = lv.Points.from_array(CENTRES).dataset()
    own = group_predictive_log_density(found.estimate, at, groups.select([0]).dataset())
    new = group_predictive_log_density(found.estimate, at)
    assert own[0] > new[0]
    assert own[2] < new[2] - 1
    with pytest.raises(ValueError, match="got 5 groups"):
        group_predictive_log_density(found.estimate, at, groups.dataset())


@pytest.mark.slow
def test_a_fit_repeats_and_grows():
    found, (groups, _) = model(), planted()
    fitter = estimator(found.model, groups.dataset())
    first, again = (fitter.fit((6,), jax.random.key(0), None) for _ in range(2))
    assert again.log_lower == first.log_lower
    grown = fitter.fit((7,), jax.random.key(1), found.estimate)
    assert grown.log_lower == pytest.approx(found.evidence.lower, abs=3)
    assert fitter.memory_plan((6,)).peak_bytes < fitter.memory_plan((100,)).peak_bytes


@pytest.mark.thorough
def test_proposals_are_kept_only_where_the_bound_rises():
    """From a pooled fit without proposals of its own and a truncation to spare: every one is in the record with its
    terms, which sum to its gain; what was accepted raised the bound."""
    groups, _ = planted()
    settings = GroupSettings(pooled=MixtureSettings(starts=1, start_sweeps=1, sweeps=2, rounds=0))
    kind = lv.models.DiagonalComponents.scaled_to(groups.rows.values)
    fitter = GroupsEstimator(HDPMixture(kind, tables=4), groups.dataset(), settings)
    found = fitter.fit_with_history((6,), jax.random.key(2))
    assert {"merge", "delete"} <= {proposal.kind for proposal in found.proposals}
    for proposal in found.proposals:
        assert sum(proposal.terms.values()) == pytest.approx(proposal.gain, abs=1e-6)
        assert proposal.accepted == (proposal.gain > 1e-5 * len(groups.rows))
    kept = sum(proposal.gain for proposal in found.proposals if proposal.accepted)
    assert found.estimate.log_lower == pytest.approx(found.bounds[-1] + kept, abs=0.5)
    assert found.estimate.log_lower > found.bounds[-1] - 0.1


ODD = ("duplicates", "all equal", "huge", "tiny")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["constant column", "far", *(pytest.param(name, marks=pytest.mark.slow) for name in ODD)]
)
def test_odd_rows_give_numbers(name):
    groups, _ = planted()
    rows = groups.rows.values
    odd = {
        "duplicates": np.repeat(rows[:8], 5, axis=0),
        "constant column": np.stack([rows[:, 0], np.full(len(rows), 0.7)], axis=1),
        "all equal": np.full_like(rows, 1.3),
        "huge": 1e12 * rows,
        "tiny": 1e-9 * rows,
        "far": 1e9 + 1e6 * rows,
    }[name]
    plain = name in ("duplicates", "constant column", "all equal")
    unscaled = lv.models.DiagonalComponents(np.zeros(2), np.ones(2))
    kind = unscaled if plain else lv.models.DiagonalComponents.scaled_to(odd)
    data = groups_of_rows(odd, np.ones(odd.shape, bool), groups.sizes)
    estimate = estimator(HDPMixture(kind, tables=4), data).fit((6,), jax.random.key(0), None)
    assert np.isfinite(estimate.log_lower)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(estimate.natural))
    if not plain:
        scale = {"huge": 1e12, "tiny": 1e-9, "far": 1e6}[name]
        assert estimate.log_lower + rows.size * np.log(scale) == pytest.approx(model().evidence.lower, abs=3)


@pytest.mark.thorough
def test_what_cannot_be_modelled_is_refused():
    with pytest.raises(ValueError, match="got tables=0"):
        HDPMixture(tables=0)
    with pytest.raises(ValueError, match="group_concentration must be one positive number"):
        HDPMixture(group_concentration=-1.0)
    with pytest.raises(ValueError, match="expected components with a prior"):
        HDPMixture(lv.models.BernoulliComponents(estimated=True))
    with pytest.raises(ValueError, match="no plug-in form"):
        HDPMixture().plug_in()
    with pytest.raises(ValueError, match="expected 0 or 1"):
        lv.fit(HDPMixture(lv.models.BernoulliComponents()), planted()[0], size=2)
    with pytest.raises(ValueError, match="expected data whose units"):
        lv.fit(HDPMixture(), lv.Points.from_array(np.eye(3)), size=2)


def test_the_model_can_be_stored():
    whole = HDPMixture(cases.FULL.component, 2.0, GammaPrior(1.0, 3.0), tables=5)
    stored = decode_module(encode_module(whole))
    assert stored.describe() == whole.describe()
    assert "shared concentration 2; group concentration ~ Gamma(1, rate 3); 5 tables in a group" in stored.describe()


# ── groups as data ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_groups_come_from_arrays_and_frames():
    frame = pd.DataFrame({"school": ["b", "a", "b"], "maths": [1.0, 2, 3], "art": [4.0, np.nan, 6]})
    groups = lv.Groups.from_frame(frame, group="school", missing="nan")
    assert groups.names == ("b", "a")
    assert groups.sizes.tolist() == [2, 1]
    assert groups.columns == ("maths", "art")
    assert groups.observations_per_unit.tolist() == [4, 1]
    np.testing.assert_array_equal(groups.rows.values, [[1, 4], [3, 6], [2, np.nan]])
    arrays = [np.array([[1.0, 4], [3, 6]]), np.array([[2.0, np.nan]])]
    same = lv.Groups.from_arrays(arrays, missing="nan", columns=["maths", "art"], names=["b", "a"])
    assert lv.Groups.from_frame(frame.iloc[[0, 2, 1]].reset_index(drop=True), group="school", missing="nan") == same
    assert groups.rows.row_names == ("0", "2", "1")  # the rows were moved, and say where each stood
    assert dataclasses.replace(groups.rows, row_names=None, row_kind="text") == same.rows
    assert "2 groups, 3 rows × 2 columns, 5 of 6 cells observed" in repr(groups)


@pytest.mark.thorough
def test_groups_are_split_stored_and_put_back_in_order():
    groups, _ = planted()
    assert "1 of 5 groups have no rows" in groups.notes[-1]
    train, test = groups.split(test_fraction=0.4, seed=0)
    assert sorted((*train.names, *test.names)) == sorted(groups.names)  # pyright: ignore
    chosen = groups.select([3, 0])
    assert chosen.names == ("school 3", "school 0")
    np.testing.assert_array_equal(chosen.group(1).values, groups.group(0).values)
    assert lv.Groups.from_storage(*groups.to_storage()) == groups
    data = groups.dataset()
    assert data.n_units == 5
    back = contents_of(HDPMixture(), data)
    np.testing.assert_array_equal(back.members.coordinates, groups.rows.values)
    np.testing.assert_array_equal(np.diff(back.counts.indptr), groups.sizes)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lv.Groups.from_arrays([[[1.0, 2]], [[1.0]]]), r"got \[1, 2\] columns"),
        (lambda: lv.Groups.from_arrays([[1.0, 2]]), r"got group 0 of shape \(2,\)"),
        (lambda: lv.Groups.from_arrays(np.eye(3)), "expected a list with a matrix"),
        (lambda: lv.Groups.from_arrays([[], []]), "without a single row"),
        (lambda: lv.Groups.from_arrays([[[np.nan]]]), "got NaN"),
        (lambda: lv.Groups.from_arrays([[[1.0]]], names=["a", "b"]), "got 2 names, expected 1"),
        (lambda: lv.Groups.from_arrays([[[1.0]], [[2.0]]], names=["a", "a"]), "group name 'a' twice"),
        (lambda: lv.Groups.from_frame(pd.DataFrame({"x": [1.0]}), group="school"), "expected one named 'school'"),
        (lambda: lv.Groups.from_frame(pd.DataFrame({"s": [None], "x": [1.0]}), group="s"), "1 rows without a group"),
        (lambda: lv.Groups.from_any(pd.DataFrame({"x": [1.0]})), "say which column names the group"),
        (lambda: lv.Groups.from_any(3), "got int, expected Groups or a list"),
        (lambda: planted()[0].select([4]), "that are all empty"),
        (lambda: planted()[0].group(4), "got group 4, which has no rows"),
        (lambda: planted()[0].like_this([[[1.0]]]), "got rows of 1 columns, expected the 2"),
        (lambda: planted()[0].like_this(lv.Points.from_array(np.eye(2))), "got Points"),
    ],
)
def test_what_is_no_groups_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
