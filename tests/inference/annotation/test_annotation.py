"""Images with captions: the models against textbook densities and the thesis' updates, the estimator against the
generic engine, starts, tasks, and what is missing.

Everything about the three models that every model must do is in the table of `test_models.py`.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from annotation_cases import (
    ETA,
    FEATURES,
    GAUSSIAN,
    N_WORDS,
    PRESENT,
    REGIONS,
    TOKENS,
    Simulated,
    feature_images,
    feature_units,
    simulate,
    token_images,
)
from engine_steps import batch_statistics
from fits_without_parameters import fit_without_parameters
from oracles import all_assignments, log_dirichlet_multinomial, one_hot
from scipy.special import digamma, logsumexp, softmax

import lvsearch as lv
from lvsearch.inference.annotation.estimator import AnnotationEstimator, AnnotationSettings, collapsed_sweep
from lvsearch.inference.annotation.predictions import caption_distributions, collapsed_factors, region_distributions
from lvsearch.inference.annotation.starts import cluster
from lvsearch.inference.annotation.tiles import blank_tile, in_tiles, tile_step
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import beliefs_of, capacity_of, pad_axes
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.engine.meanfield import batch_bound, cast, fit_locals, globals_bound, sweep_unit
from lvsearch.inference.engine.meanfield_starts import blank_locals, scattered_start
from lvsearch.models import GMLDA, AnnotatedImage, CorrLDA, GMMixture, MultinomialComponents

MODELS = (GMMixture, GMLDA, CorrLDA)
SIZE, CAPACITY = (2,), (3,)
ALPHA = np.array([0.6, 1.1])


def gaussian(model: Any, concentration: Any = 1.7) -> Any:
    return model(concentration, MultinomialComponents(ETA), REGIONS)


def tokens(model: Any, concentration: Any = 1.7) -> Any:
    return model(concentration, MultinomialComponents(ETA), MultinomialComponents(0.3))


# ── the log-joint is the thesis' ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        pytest.param(CorrLDA, "tokens", marks=pytest.mark.thorough),
        *(pytest.param(kind, "tokens", marks=pytest.mark.slow) for kind in (GMMixture, GMLDA)),
        *(pytest.param(kind, "features", marks=pytest.mark.slow) for kind in MODELS),
    ],
)
def test_log_joint_is_the_product_of_the_textbook_densities(kind, family, float64):
    """At a joint draw: every density written out with SciPy, priors and latents included (Eq. 4.1 and after it)."""
    model = gaussian(kind, ALPHA) if family == "features" else tokens(kind, ALPHA)
    regions = FEATURES if family == "features" else TOKENS
    units = AnnotatedImage(regions, PRESENT, np.zeros((5, 3), np.int32), np.ones((5, 3)))
    extents = {"word": N_WORDS, "dim": 2} if family == "features" else {"word": N_WORDS, "dim": 3}

    @jax.jit
    def draw(key: Any) -> Any:
        g, l, drawn = model.simulate(key, SIZE, units, extents)
        on = model.active(SIZE, SIZE)
        per_unit = jax.vmap(lambda unit, lu: model.log_unit(g, lu, unit, on))(drawn, l)
        return jax.tree.map(jnp.asarray, (g, l, drawn, model.log_prior(g, on) + per_unit.sum()))

    g, l, drawn, actual = jax.tree.map(np.asarray, draw(jax.random.key(5)))

    beta = np.exp(g["factor_word"])
    log_p = sum(scipy.stats.dirichlet(np.full(N_WORDS, ETA)).logpdf(row / row.sum()) for row in beta)
    if family == "features":
        precision = -g["factor_region"].negative_precision
        mean = GAUSSIAN[0] + g["factor_region"].precision_mean / precision
        centre, pseudo_count, shape, rate = GAUSSIAN
        log_p += scipy.stats.gamma(shape, scale=1 / rate).logpdf(precision).sum()
        log_p += scipy.stats.norm(centre, (pseudo_count * precision) ** -0.5).logpdf(mean).sum()
    else:
        probability = np.exp(g["factor_region"])
        log_p += sum(scipy.stats.dirichlet(np.full(3, 0.3)).logpdf(row / row.sum()) for row in probability)

    def log_region(region: Any, factor: int) -> float:
        if family == "tokens":
            return float(np.log(probability[factor, region]))
        return float(scipy.stats.norm(mean[factor], precision[factor] ** -0.5).logpdf(region).sum())

    if kind is GMMixture:
        log_p += scipy.stats.dirichlet(ALPHA).logpdf(np.exp(g["weights"]) / np.exp(g["weights"]).sum())
    for d in range(5):
        there = PRESENT[d]
        if kind is GMMixture:
            z = int(np.argmax(l["factor"][d]))
            log_p += np.asarray(g["weights"])[z]
            factors, words = [z] * there.sum(), [z] * 3
        else:
            theta = np.exp(np.asarray(l["proportions"][d]))
            log_p += scipy.stats.dirichlet(ALPHA).logpdf(theta / theta.sum())
            site = "region_assignment" if kind is GMLDA else "assignment"
            factors = list(np.argmax(l[site][d][there], -1)) if there.any() else []
            log_p += np.log(theta)[factors].sum()
            if kind is GMLDA:
                words = list(np.argmax(l["word_assignment"][d], -1))
                log_p += np.log(theta)[words].sum()
            else:
                words = [factors[n] for n in np.argmax(l["correspondence"][d], -1)] if there.any() else []
                log_p -= len(words) * np.log(max(there.sum(), 1))
        log_p += sum(log_region(r, k) for r, k in zip(np.asarray(drawn.regions[d])[there], factors, strict=True))
        log_p += sum(np.log(beta[k, w]) for k, w in zip(words, np.asarray(drawn.words[d]), strict=False))
    np.testing.assert_allclose(actual, log_p, rtol=1e-9)


# ── the printed updates of Corr-LDA come out of the gradient ────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize("family", [pytest.param("features", marks=pytest.mark.slow), "tokens"])
def test_corr_lda_sweep_is_the_printed_coordinate_ascent(family, float64):
    """φ, λ and γ of §4.1.3, with z_n for the misprinted z_m in S_ni, from the values that the sweep starts from."""
    model = gaussian(CorrLDA, ALPHA) if family == "features" else tokens(CorrLDA, ALPHA)
    data = feature_images() if family == "features" else token_images()
    state = scattered_start(model, jax.random.key(2), data, SIZE, SIZE, np.float64)
    g, on = state.beliefs.mean, model.active(SIZE, SIZE)
    log_beta = np.asarray(g["factor_word"])
    sweep = jax.jit(lambda unit, start: (sweep_unit(model, g, unit, start, on), model.log_regions(g, unit)))
    for d in range(3):  # the others have no regions
        unit = jax.tree.map(lambda x, d=d: jnp.asarray(x[d]), data.batches[0].units)
        start = jax.tree.map(lambda x, d=d: x[d], state.locals[0])
        swept, log_regions = sweep(unit, start)
        n, counts, words = int(PRESENT[d].sum()), np.asarray(unit.counts), np.asarray(unit.words)
        lam, gamma = np.asarray(start.mean["correspondence"])[:, :n], np.asarray(start.natural["proportions"]) + 1
        log_regions = np.asarray(log_regions)[:n]
        expected_log_theta = digamma(gamma) - digamma(gamma.sum())
        score = log_regions + expected_log_theta + np.einsum("m,mn,mi->ni", counts, lam, log_beta[:, words].T)
        phi = softmax(score, axis=1)
        np.testing.assert_allclose(swept.mean["assignment"][:n], phi, atol=1e-12)
        assert np.all(np.asarray(swept.mean["assignment"])[n:] == 0)
        new_lam = softmax(np.einsum("ni,im->mn", phi, log_beta[:, words]), axis=1)
        real = counts > 0
        np.testing.assert_allclose(np.asarray(swept.mean["correspondence"])[real][:, :n], new_lam[real], atol=1e-12)
        np.testing.assert_allclose(np.asarray(swept.natural["proportions"]) + 1, ALPHA + phi.sum(0), rtol=1e-12)


# ── tiles ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [CorrLDA, *(pytest.param(k, marks=pytest.mark.slow) for k in (GMMixture, GMLDA))])
def test_a_tile_is_the_generic_engine(kind, float64):
    """Same locals, bound and statistics; padding adds nothing."""
    model, data = gaussian(kind), feature_images()
    state = scattered_start(model, jax.random.key(2), data, SIZE, CAPACITY, np.float64)
    g = state.beliefs.mean
    tiles = in_tiles(data, 1 << 18)
    (tile,) = tiles.batches
    assert tiles.unit_ids[0].tolist() == [0, 1, 2, 3, 4, -1, -1, -1]
    start, nothing = blank_tile(model, tile, SIZE, capacity=CAPACITY), jax.tree.map(jnp.zeros_like, g)
    step = tile_step(model, g, tile, start, nothing, SIZE, capacity=CAPACITY, sweeps=3)
    blank = jax.tree.map(jnp.zeros_like, state.locals[0])
    direct = fit_locals(model, g, data.batches[0], blank, SIZE, capacity=CAPACITY, sweeps=3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[:5], b, atol=1e-12), step.locals, direct.mean)
    bounds = batch_bound(model, g, data.batches[0], direct, SIZE, capacity=CAPACITY)
    np.testing.assert_allclose(step.bounds, np.append(bounds, [0, 0, 0]), atol=1e-12)
    added = batch_statistics(model, g, data.batches[0], direct.mean, SIZE, capacity=CAPACITY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), step.total, added)
    again = tile_step(model, g, tile, start, step.total, SIZE, capacity=CAPACITY, sweeps=3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 2 * b, atol=1e-11), again.total, added)


def test_every_unit_is_in_one_tile():
    """Tiles of one shape per shape of batch, whatever the number of units; results come back in their order."""
    units = jax.tree.map(lambda x: np.concatenate([x] * 5), feature_units())  # 25 images
    data = Dataset.of_batches(
        (Batch(units, np.ones(25)),), (np.random.default_rng(0).permutation(25),), {"word": N_WORDS}, 25
    )
    tiles = in_tiles(data, 1 << 16)  # of eight units
    assert {tile.units.regions.shape for tile in tiles.batches} == {(8, 2, 2)}
    assert sorted(np.concatenate(tiles.unit_ids).tolist()) == [-1] * 7 + list(range(25))
    for tile, ids in zip(tiles.batches, tiles.unit_ids, strict=True):
        np.testing.assert_array_equal(ids >= 0, tile.weight > 0)
    np.testing.assert_array_equal(tiles.gather([10 * ids for ids in tiles.unit_ids]), 10 * np.arange(25))


@pytest.mark.parametrize("kind", [pytest.param(GMLDA, marks=pytest.mark.slow), CorrLDA])
def test_a_collapsed_sweep_is_the_printed_one(kind, float64):
    """q(z_n = k) ∝ p(r_n | k) Π_m β_kw^λ_mn (α_k + Σ_{n' ≠ n} q(z_n' = k)), n' over all that has a factor; so for
    GM-LDA's words. The statistics of the proportions are not used."""
    model, data = gaussian(kind, ALPHA), feature_images()
    state = scattered_start(model, jax.random.key(2), data, SIZE, SIZE, np.float64)
    g, on = state.beliefs.mean, model.active(SIZE, SIZE)
    sweep = jax.jit(lambda unit, means: (collapsed_sweep(model, g, unit, means, on), model.log_regions(g, unit)))
    for d in range(3):
        unit = jax.tree.map(lambda x, d=d: jnp.asarray(x[d]), data.batches[0].units)
        start = jax.tree.map(lambda x, d=d: x[d], state.locals[0]).mean
        swept, log_regions = jax.tree.map(np.asarray, sweep(unit, start))
        n, counts, words = int(PRESENT[d].sum()), np.asarray(unit.counts), np.asarray(unit.words)
        log_beta, log_regions = np.asarray(g["factor_word"]), log_regions[:n]
        site = "assignment" if kind is CorrLDA else "region_assignment"
        phi = np.asarray(start[site])[:n]
        of_words = counts @ np.asarray(start["word_assignment"]) if kind is GMLDA else 0.0
        if kind is CorrLDA:
            lam = np.asarray(start["correspondence"])[:, :n]
            log_regions = log_regions + np.einsum("m,mn,mk->nk", counts, lam, log_beta[:, words].T)
        expected = softmax(log_regions + np.log(ALPHA + phi.sum(0) - phi + of_words), axis=1)
        np.testing.assert_allclose(swept[site][:n], expected, atol=1e-12)
        assert np.all(swept[site][n:] == 0)
        if kind is GMLDA:
            v, real = np.asarray(start["word_assignment"]), counts > 0
            weight = ALPHA + expected.sum(0) + (counts @ v) - v
            np.testing.assert_allclose(
                swept["word_assignment"][real], softmax(log_beta[:, words].T + np.log(weight), axis=1)[real], atol=1e-12
            )


# ── fits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def small() -> Simulated:
    return simulate(0, n_images=60, n_factors=3, n_dims=2, n_words=7)


@cache
def fitted(kind: Any, evidence: str = "marginal") -> lv.FittedModel:
    return lv.fit(kind(), small().corpus, size=3, evidence=evidence, seed=0)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [CorrLDA, *(pytest.param(k, marks=pytest.mark.slow) for k in (GMMixture, GMLDA))])
def test_evidence_is_the_bound_at_the_state_carried(kind):
    """Recomputed by the generic engine in float64, at the globals of the estimate: never above, and close."""
    estimate = fitted(kind).estimate
    data = small().corpus.dataset()
    capacity = capacity_of(estimate.size)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), pad_axes(kind(), estimate.natural, (3,), capacity))
        beliefs = beliefs_of(kind(), wide, (3,), capacity=capacity)
        total = float(globals_bound(kind(), beliefs, (3,), capacity=capacity))
        for batch in cast(data, np.float64).batches:
            blank = blank_locals(kind(), batch, (3,), capacity=capacity)
            l = fit_locals(kind(), beliefs.mean, batch, blank, (3,), capacity=capacity, sweeps=100)
            total += float(np.asarray(batch_bound(kind(), beliefs.mean, batch, l, (3,), capacity=capacity)).sum())
    assert estimate.log_lower == pytest.approx(total, abs=1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("evidence", ["marginal", pytest.param("plug-in", marks=pytest.mark.slow)])
def test_corr_lda_labels_simulated_regions(evidence):
    """Means four standard deviations apart: the label is the most probable word of the region's own factor."""
    simulated = small()
    labels = fitted(CorrLDA, evidence).label_regions(simulated.corpus, 1)
    truth = np.array(simulated.top_words)[simulated.factors]
    assert np.mean(labels["words"].to_numpy() == truth) > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [CorrLDA, *(pytest.param(k, marks=pytest.mark.slow) for k in (GMLDA, GMMixture))])
def test_bound_rises_with_every_pass(kind):
    data = small().corpus.dataset()
    few, more = (
        AnnotationEstimator(kind(), data, AnnotationSettings(passes=n, tolerance=0.0)).fit(
            (4,), jax.random.key(1), None
        )
        for n in (2, 12)
    )
    assert more.log_lower > few.log_lower
    assert (few.passes, more.passes) == (2, 12)


@pytest.mark.slow  # that a sweep is the printed one is in a shorter tier
def test_collapsed_passes_find_a_better_start():
    """Eight simulated factors of 40 tokens: a bound far above that of mean field alone from the same clusters."""
    random, n_images = np.random.default_rng(0), 300
    of_tokens, of_words = random.dirichlet(np.full(40, 0.15), size=8), random.dirichlet(np.full(24, 0.1), size=8)
    regions, captions = np.zeros((n_images, 40), int), np.zeros((n_images, 24), int)
    for image in range(n_images):
        factors = random.choice(8, size=7, p=random.dirichlet(np.full(8, 0.1)))
        np.add.at(regions[image], [random.choice(40, p=of_tokens[k]) for k in factors], 1)
        np.add.at(captions[image], [random.choice(24, p=of_words[k]) for k in factors[:3]], 1)
    data = lv.PairedCorpus.from_arrays(regions, captions).dataset()
    plain, collapsed = (
        AnnotationEstimator(tokens(CorrLDA), data, AnnotationSettings(collapsed_passes=passes))
        .fit((8,), jax.random.key(0), None)
        .log_lower
        for passes in (0, 40)
    )
    assert collapsed > plain + 50


@pytest.mark.thorough
def test_a_fit_does_not_depend_on_the_images_order():
    corpus = small().corpus
    other = corpus.select(np.random.default_rng(3).permutation(len(corpus)))
    a, b = (
        AnnotationEstimator(CorrLDA(), c.dataset()).fit((3,), jax.random.key(1), None).log_lower
        for c in (corpus, other)
    )
    assert a == pytest.approx(b, abs=0.5)  # clusters are found from a shuffle; the optimum is the same


@pytest.mark.thorough
def test_a_larger_fit_can_start_from_a_smaller_one():
    estimator = AnnotationEstimator(CorrLDA(), small().corpus.dataset())
    start = estimator.fit((2,), jax.random.key(0), None)
    grown, scratch = estimator.fit((3,), jax.random.key(1), start), estimator.fit((3,), jax.random.key(1), None)
    assert grown.log_lower > scratch.log_lower - 1.0


@pytest.mark.thorough
def test_plug_in_estimates_the_weights_of_factors():
    """α, one per factor, at the maximum of the bound; the Gaussians and words at points, variances above the floor."""
    model = fitted(CorrLDA, "plug-in").model
    assert isinstance(model, CorrLDA)
    assert model.concentration.shape == (3,)
    assert model.words.estimated
    value = lv.inference.engine.describing.site_value(fitted(CorrLDA, "plug-in").estimate, "factor_region")
    assert np.all(1 / value.precision >= 0.99e-3)


@pytest.mark.slow
def test_plug_in_weights_of_a_mixture_sum_to_one():
    mixture = fitted(GMMixture, "plug-in")
    np.testing.assert_allclose(mixture.table("weights").to_numpy().sum(), 1, rtol=1e-5)


@pytest.mark.thorough
def test_empirical_bayes_raises_the_bound():
    data = small().corpus.dataset()
    plain, refitted = (
        AnnotationEstimator(CorrLDA(1.0, MultinomialComponents(3.0)), data, empirical_bayes=eb).fit(
            (3,), jax.random.key(0), None
        )
        for eb in (False, True)
    )
    assert refitted.model.words.concentration < 1.0  # captions are simulated with 0.1
    assert refitted.log_lower > plain.log_lower + 1


def test_clusters_are_found():
    random = np.random.default_rng(0)
    truth = random.integers(5, size=400)
    points = 10 * np.eye(5)[truth] + random.normal(size=(400, 5))
    found = cluster(points, 5, random)
    assert pd.crosstab(found, truth).to_numpy().max(axis=1).sum() == 400
    assert len(set(cluster(np.ones((6, 2)), 4, random))) == 1  # fewer distinct points than clusters


@pytest.mark.parametrize("total", [0.5, pytest.param(5.0, marks=pytest.mark.slow)])
def test_an_image_alone_is_nearly_as_by_enumeration(total, float64):
    """Factors of three to five regions, proportions integrated out: an image's shares of the factors are nearer
    to the exact ones than mean field's are, on average and by far."""
    random, n_factors, collapsed_error, mean_field_error = np.random.default_rng(0), 3, [], []
    alpha, factors_of = total * np.array([0.5, 0.3, 0.2]), jax.jit(collapsed_factors)
    for _ in range(40):
        n = int(random.integers(3, 6))
        log_density = random.normal(scale=1.5, size=(n, n_factors))
        z = all_assignments(n_factors, n)
        log_p = log_dirichlet_multinomial(one_hot(z, n_factors).sum(1), alpha)
        log_p = log_p + log_density[np.arange(n), z].sum(1)
        exact = np.einsum("a,ank->nk", softmax(log_p), one_hot(z, n_factors)).mean(0)
        present, padded = np.arange(6) < n, np.pad(log_density, ((0, 6 - n), (0, 2)))
        phi = np.asarray(factors_of(padded, np.pad(alpha, (0, 2)), present, np.arange(5) < n_factors))
        assert np.all(phi[n:] == 0)
        assert np.all(phi[:, n_factors:] == 0)
        np.testing.assert_allclose(phi[:n].sum(1), 1, rtol=1e-12)
        field = np.full((n, n_factors), 1 / n_factors)
        for _ in range(200):
            field = softmax(log_density + digamma(alpha + field.sum(0)), axis=1)
        collapsed_error.append(np.abs(phi[:n, :n_factors].mean(0) - exact).sum() / 2)
        mean_field_error.append(np.abs(field.mean(0) - exact).sum() / 2)
    assert np.mean(collapsed_error) < 0.5 * np.mean(mean_field_error)
    assert np.mean(collapsed_error) < 0.1


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_mixture_captions_are_exact():
    """p(w | r) ∝ Σ_z p(z) p(r | z) β_zw (§4.1.1), with SciPy's densities."""
    model, corpus = fitted(GMMixture), small().corpus
    value = lv.inference.engine.describing.site_value(model.estimate, "factor_region")
    log_weights = np.log(model.table("weights").to_numpy()[:, 0])
    beta, found = model.table("factor_word").to_numpy(), model.caption_distribution(corpus).to_numpy()
    for image in range(5):
        r = corpus.image_regions(image)
        log_p = scipy.stats.norm(value.mean, value.precision**-0.5).logpdf(r[:, None, :]).sum((0, 2)) + log_weights
        expected = np.exp(log_p - logsumexp(log_p)) @ beta
        np.testing.assert_allclose(found[image], expected, atol=2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [pytest.param(GMLDA, marks=pytest.mark.slow), CorrLDA])
def test_region_distributions_come_from_the_regions_factors(kind):
    """Corr-LDA's caption distribution is their average over the image's regions: with 1/N, which the thesis lacks."""
    model, corpus = fitted(kind), small().corpus
    per_region = region_distributions(model.estimate, corpus.dataset())
    whole = caption_distributions(model.estimate, corpus.dataset())
    np.testing.assert_allclose(whole.sum(1), 1, rtol=1e-12)
    for image, rows in enumerate(per_region):
        assert rows.shape == (corpus.region_counts[image], len(corpus.vocabulary))
        np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-12)
    if kind is CorrLDA:
        np.testing.assert_allclose([rows.mean(0) for rows in per_region], whole, atol=1e-4)


def test_captions_are_not_looked_at():
    model, corpus = fitted(CorrLDA), small().corpus
    bare = (
        [corpus.image_regions(image) for image in range(len(corpus))],
        None,
    )
    np.testing.assert_array_equal(
        model.caption_distribution(corpus).to_numpy(), model.caption_distribution(bare).to_numpy()
    )


@pytest.mark.thorough
def test_the_mixture_labels_no_regions():
    with pytest.raises(ValueError, match=r"GMMixture has no region labels.*CorrLDA or GMLDA"):
        fitted(GMMixture).label_regions(small().corpus)


def test_caption_scores_add_up():
    model, corpus = fitted(CorrLDA), small().corpus
    scores = model.caption_scores(corpus)
    probability = model.caption_distribution(corpus).to_numpy()
    by_hand = sum(
        np.log(probability[image, corpus.vocabulary.index(word)])
        for image in range(len(corpus))
        for word in corpus.caption(image)
    )
    assert scores.per_image.sum() == pytest.approx(by_hand)
    assert scores.perplexity == pytest.approx(np.exp(-by_hand / scores.n_words))
    assert scores.n_words == corpus.captions.n_tokens
    unigram = corpus.captions.term_totals / corpus.captions.n_tokens
    assert scores.perplexity < np.exp(scipy.stats.entropy(unigram))  # the regions inform the captions


@pytest.mark.slow
def test_an_unseen_word_is_positive_when_smoothed_and_reported_when_not():
    corpus = small().corpus
    vocabulary = (*corpus.vocabulary, "never")
    counts = np.pad(corpus.captions.counts.toarray(), ((0, 0), (0, 1)))
    regions = [corpus.image_regions(image) for image in range(len(corpus))]
    train = lv.PairedCorpus.from_arrays(regions, counts, vocabulary)
    counts[0, -1] = 1
    test = lv.PairedCorpus.from_arrays(regions, counts, vocabulary)
    smoothed, estimated = (
        lv.fit(CorrLDA(), train, size=2, evidence=evidence, seed=0) for evidence in ("marginal", "plug-in")
    )
    a, b = smoothed.caption_scores(test), estimated.caption_scores(test)
    assert (a.impossible, a.unseen) == (0, ("never",))
    assert smoothed.caption_distribution(test)["never"].min() > 1e-4
    assert (b.impossible, b.unseen) == (1, ("never",))
    assert "1 of them have no probability" in b.describe()
    assert np.isfinite(b.perplexity)


def test_retrieval_ranks_by_the_query():
    model, corpus = fitted(CorrLDA), small().corpus
    word = small().top_words[0]
    found = model.retrieve(corpus, word)
    probability = model.caption_distribution(corpus)[word].to_numpy()
    np.testing.assert_array_equal(found.ranking, lv.fitted.annotation.rank_images(np.log(probability)))
    np.testing.assert_allclose(probability[found.ranking], np.sort(probability)[::-1], rtol=1e-8)
    relevant = np.array([word in corpus.caption(image) for image in range(len(corpus))])
    np.testing.assert_array_equal(found.relevant, relevant[found.ranking])
    curve = found.precision_recall
    assert curve["recall"].iloc[-1] == 1
    assert curve["precision"].iloc[-1] == pytest.approx(relevant.sum() / (np.flatnonzero(found.relevant)[-1] + 1))
    assert found.mean_precision > relevant.mean()  # better than a random order
    two = model.retrieve(corpus, f"{small().top_words[0]} {small().top_words[1]}")
    assert two.scores[0] == pytest.approx(
        np.log(model.caption_distribution(corpus)[list(two.query)].to_numpy()[two.ranking[0]]).sum()
    )
    with pytest.raises(ValueError, match=r"\['zebra'\] are not"):
        model.retrieve(corpus, ["zebra"])
    with pytest.raises(ValueError, match="one or more words"):
        model.retrieve(corpus, "")


def test_ties_are_by_place_however_sums_were_rounded():
    """Scores that are equal but for their last bits, in every order of these bits; and images without a chance."""
    scores = np.array([-3.0, -1.0, -np.inf, -1.0, -3.0, -1.0, -2.0, -np.inf])
    expected = [1, 3, 5, 6, 0, 4, 2, 7]
    for seed in range(50):
        noise = 1e-14 * np.random.default_rng(seed).integers(-3, 4, len(scores))
        np.testing.assert_array_equal(lv.fitted.annotation.rank_images(scores + noise), expected)
    np.testing.assert_array_equal(lv.fitted.annotation.rank_images(np.array([-1.0, -1.0 + 1e-7])), [1, 0])
    assert lv.fitted.annotation.rank_images(np.zeros(0)).shape == (0,)


def test_images_that_are_the_same_are_retrieved_in_their_order():
    """Wherever they stand, and so whatever is computed beside them."""
    model, corpus = fitted(CorrLDA), small().corpus
    word = small().top_words[0]
    places = [7, 3, 7, 11, 3, 7]
    found = model.retrieve(corpus.select(places), word)
    for image in (3, 7):
        same = [place for place in found.ranking.tolist() if places[place] == image]
        assert same == sorted(same)


def test_precision_and_recall_by_hand():
    relevant = np.array([True, False, True, False, False])
    found = lv.fitted.annotation.Retrieval(("a",), np.arange(5), np.zeros(5), relevant)
    np.testing.assert_allclose(found.precision_recall, [[0.5, 1.0], [1.0, 2 / 3]])
    assert found.mean_precision == pytest.approx(5 / 6)
    none = lv.fitted.annotation.Retrieval(("a",), np.arange(2), np.zeros(2), np.zeros(2, bool))
    assert np.isnan(none.mean_precision)


@pytest.mark.parametrize(("kind", "most"), [(CorrLDA, 0.05), pytest.param(GMLDA, 1.0, marks=pytest.mark.slow)])
def test_corr_lda_words_come_from_factors_that_are_there(kind, most):
    """The share of words from absent factors is 0 by construction, and not for GM-LDA (§4.2.2)."""
    corpus = small().corpus
    found = lv.fitted.annotation.absent_factor_words(fitted(kind), corpus)
    assert found.words == corpus.captions.n_tokens
    assert 0 <= found.share <= most


def test_models_without_captions_say_so():
    model = fit_without_parameters(lv.models.LDA(), np.array([[1, 2], [2, 0], [0, 3]]))
    for name in ("annotate", "caption_scores", "label_regions", "caption_distribution"):
        with pytest.raises(AttributeError, match=f"a fit of LDA has no '{name}'; it has .*topics"):
            getattr(model, name)


# ── what is missing ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.slow
def test_images_without_regions_or_captions(kind):
    """Both are kept; Corr-LDA leaves the captions of images without regions out, the others use them."""
    data = feature_images()
    model = gaussian(kind)
    estimate = GenericEstimator(model, data, sweeps=5).fit((2,), jax.random.key(0), None)
    described = describe_units(model, estimate, data)
    assert np.all(np.isfinite(described.log_lower))
    np.testing.assert_allclose(described.representation.sum(1), 1, rtol=1e-6)
    assert described.log_lower[4] == pytest.approx(0, abs=1e-9)  # neither regions nor words
    if kind is CorrLDA:
        assert described.log_lower[3] == pytest.approx(0, abs=1e-9)
    else:
        assert described.log_lower[3] < -0.1
    np.testing.assert_allclose(caption_distributions(estimate, data).sum(1), 1, rtol=1e-12)


def test_wrong_kind_of_regions_is_refused():
    with pytest.raises(
        ValueError, match=r"tokens for DiagonalComponents.*regions=lv.models.MultinomialComponents\(0.1\)"
    ):
        lv.fit(CorrLDA(), lv.PairedCorpus.from_arrays(np.eye(3, dtype=int), np.eye(3, dtype=int)), size=2)
    with pytest.raises(ValueError, match=r"for MultinomialComponents, expected whole numbers"):
        lv.fit(CorrLDA(regions=MultinomialComponents()), small().corpus, size=2)


@pytest.mark.thorough
def test_ceilings_are_above(float64):
    """Of the plug-in Gaussian: the floor's density; of captions that Corr-LDA leaves out: 0."""
    units = feature_images().batches[0].units
    plug_in = gaussian(CorrLDA).plug_in()
    at_floor = -0.5 * np.log(2 * np.pi * 1e-3) * 2 * PRESENT.sum()
    words = 2 * np.log(2 / 3) + np.log(1 / 3)  # of the first image; the others have one word or none
    assert plug_in.ceiling(units) == pytest.approx(at_floor + words)
    assert gaussian(CorrLDA).ceiling(units) == np.inf
    model = fitted(CorrLDA, "plug-in")
    assert model.evidence.lower <= model.evidence.upper < np.inf


# ── sizes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # fits of images are in a shorter tier, and searches that are stored
def test_search_finds_the_number_of_factors(tmp_path):
    result = lv.search(
        CorrLDA(),
        small().corpus,
        prior=lv.sizes.Poisson(3),
        max_size=5,
        seed=0,
        progress=False,
        evidence="bound",
        out=tmp_path / "run",
    )
    assert result.best_size == (3,)
    loaded = lv.load(tmp_path / "run")
    assert loaded.best_size == (3,)
    assert loaded.best.training == small().corpus
    np.testing.assert_array_equal(loaded.best.transform(small().corpus), result.best.transform(small().corpus))


@pytest.mark.slow
def test_search_finds_the_number_of_factors_of_ten_data_sets():
    """500 images, K = 6, means at least four standard deviations apart: the mode is K in at least 9 of 10 sets, and
    Corr-LDA's labels are right for more than 90 % of the regions."""
    modes, right = [], []
    for seed in range(10):
        simulated = simulate(seed)
        result = lv.search(
            CorrLDA(3.0),
            simulated.corpus,
            prior=lv.sizes.Poisson(6),
            max_size=16,
            seed=0,
            evidence="bound",
            progress=False,
        )
        modes.append(result.best_size[0])
        labels = result.best.label_regions(simulated.corpus, 1)["words"].to_numpy()
        right.append(np.mean(labels == np.array(simulated.top_words)[simulated.factors]))
    assert sum(mode == 6 for mode in modes) >= 9, modes
    assert sum(share > 0.9 for share in right) >= 9, right
