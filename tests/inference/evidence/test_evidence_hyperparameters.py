"""LDA under Gamma priors of its hyper-parameters against enumeration of topics times quadrature of hyper-parameters."""

from functools import cache
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import Compiled
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp
from scipy.stats import chi2, gamma, kstest

import lvsearch as lv
from lvsearch.inference.annealing.hyperparameters import slice_sample
from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.evidence import (
    CollapsedTopics,
    Effort,
    GivenFactors,
    HyperTopics,
    anchored_chain,
    anneal,
    anneal_simulated,
    collapsed_topics,
    evidence_chain,
    hyper_topics,
    simulated_like,
    temperature_profile,
)
from lvsearch.inference.topic_samplers.anchor import from_topics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopicState
from lvsearch.inference.topics.inferred_concentrations import Concentration
from lvsearch.models import LDA, GammaPrior
from lvsearch.sizing.evidence import Bracket

COUNTS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
N_TOKENS, N_WORDS, K = int(COUNTS.sum()), 3, 2
MODEL = LDA(GammaPrior(2.0, 1.5), GammaPrior(1.5, 4.0))
ABOUT = LDA(0.9, 0.3)  # the numbers of a fit
TOPICS = np.random.default_rng(0).dirichlet(np.ones(N_WORDS), K)
SHARES = np.random.default_rng(1).dirichlet([1.0, 1.0], len(COUNTS))
LOG = np.linspace(-14.0, 4.0, 3601)
"""Of log A and of log η: in steps of 0.005."""


class Counts(NamedTuple):
    """All 2^N assignments and their counts."""

    z: np.ndarray
    in_document: np.ndarray
    of_word: np.ndarray


@cache
def everything() -> Counts:
    document, word = (np.repeat(i, COUNTS.ravel()) for i in np.indices(COUNTS.shape).reshape(2, -1))
    z = np.array(list(product(range(K), repeat=N_TOKENS)))
    one_hot = np.eye(K)[z]
    in_document = np.einsum("atk,td->adk", one_hot, np.eye(len(COUNTS))[document])
    return Counts(z, in_document, np.einsum("atk,tv->akv", one_hot, np.eye(N_WORDS)[word]))


def dirichlet_multinomial(counts: np.ndarray, each: np.ndarray) -> np.ndarray:
    """(state, value) log probability of counts (state, draw, entry) under a symmetric Dirichlet, `each` per entry."""
    total = each * counts.shape[-1]
    rising = gammaln(each + counts[..., None]) - gammaln(each)
    return (rising.sum(-2) - gammaln(total + counts.sum(-1)[..., None]) + gammaln(total)).sum(-2)


def likelihoods(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(z | A) and log p(w | z, η), (state, value), at the same values of both."""
    counts = everything()
    return dirichlet_multinomial(counts.in_document, values / K), dirichlet_multinomial(counts.of_word, values)


@cache
def chain(q: str, width: int = 1) -> HyperTopics:
    counts, alpha = csr_array(COUNTS), np.full(K, 0.45)
    if q == "prior":
        return hyper_topics(MODEL, collapsed_topics(counts, alpha, 0.3, 3, width=width), None)
    independent = q == "responsibilities"
    given = GivenFactors(np.log(SHARES) if independent else None, np.log(TOPICS.T))
    return hyper_topics(MODEL, collapsed_topics(counts, alpha, 0.3, 3, given, width=width), ABOUT)


def log_q_of_topics(q: str) -> np.ndarray:
    """log q(z | h) up to a constant, (state,), where it is not p(z | A)."""
    z = everything().z
    pair = np.repeat(np.arange(csr_array(COUNTS).nnz), csr_array(COUNTS).data)
    words = csr_array(COUNTS).indices[pair]
    log_words = np.log(TOPICS)[z, words].sum(1)
    if q == "responsibilities":
        document = np.repeat(np.arange(len(COUNTS)), COUNTS.sum(1))
        log_normaliser = np.log((SHARES[document] * TOPICS[:, words].T).sum(1)).sum()
        return np.log(SHARES)[document, z].sum(1) + log_words - log_normaliser
    return log_words + dirichlet_multinomial(everything().in_document, np.array([0.45]))[:, 0]


def log_gamma(prior: GammaPrior, log_value: np.ndarray) -> np.ndarray:
    """Of log x."""
    return gamma.logpdf(np.exp(log_value), prior.shape, scale=1 / prior.rate) + log_value


def start(q: str, name: str) -> GammaPrior:
    prior = MODEL.inferred[name]
    mean = {"concentration": 0.9, "topic_concentration": 0.3}[name]
    return prior if q == "prior" else GammaPrior(4.0, 4.0 / mean)


class Place(NamedTuple):
    """π_t: log of each assignment's probability, and of log A's and log η's density given it, on `LOG`; (state, …)."""

    log_z: np.ndarray
    log_total: np.ndarray
    log_eta: np.ndarray


@cache
def place(q: str, t: float) -> Place:
    log_documents, log_words = likelihoods(np.exp(LOG))

    def tempered(name: str) -> np.ndarray:
        return (1 - t) * log_gamma(start(q, name), LOG) + t * log_gamma(MODEL.inferred[name], LOG)

    total = tempered("concentration") + (1.0 if q == "prior" else t) * log_documents
    eta = tempered("topic_concentration") + t * log_words
    log_z = logsumexp(total, axis=1) + logsumexp(eta, axis=1) + 2 * np.log(LOG[1] - LOG[0])
    return Place(log_z if q == "prior" else log_z + (1 - t) * log_q_of_topics(q), total, eta)


def cumulative(log_density: np.ndarray) -> np.ndarray:
    ends = np.cumsum(np.exp(log_density - log_density.max(-1, keepdims=True)), axis=-1)
    return (ends - ends[..., :1]) / (ends[..., -1:] - ends[..., :1])


def order_of(inner: CollapsedTopics) -> np.ndarray:
    """Where the tokens of `everything` are, which has them document by document."""
    real = np.flatnonzero(inner.word >= 0)
    return real[np.lexsort((inner.word[real], inner.document[real]))]


def states(
    assignment: np.ndarray, log_total: np.ndarray, log_eta: np.ndarray, q: str = "prior", width: int = 1
) -> HyperTopicState:
    inner = chain(q, width).topics
    padded = np.full((len(inner.word), len(assignment)), -1, np.int32)
    padded[order_of(inner)] = assignment.T
    return HyperTopicState(inner.state_of_topics(jnp.asarray(padded)), jnp.asarray(log_total), jnp.asarray(log_eta))


EXACT = float(logsumexp(place("prior", 1.0).log_z))


@pytest.mark.thorough
@pytest.mark.parametrize("q", ["prior", "responsibilities", "topics"])
def test_densities_are_the_model_s(q, float64):
    rng = np.random.default_rng(3)
    z = everything().z
    log_total, log_eta = rng.normal(0, 1.5, (2, len(z)))
    log_total[0], log_eta[0] = -200.0, -300.0  # draws of a vague prior: nothing may underflow
    state = states(z, log_total, log_eta, q)
    log_documents, log_words = (
        np.diagonal(dirichlet_multinomial(*each))
        for each in (
            (everything().in_document, np.exp(log_total) / K),
            (everything().of_word, np.exp(log_eta)),
        )
    )
    log_priors = [
        log_gamma(MODEL.inferred[name], log_value) - log_value
        for name, log_value in (("concentration", log_total), ("topic_concentration", log_eta))
    ]
    log_starts = [
        log_gamma(start(q, name), log_value) - log_value
        for name, log_value in (("concentration", log_total), ("topic_concentration", log_eta))
    ]
    log_p = log_documents + log_words + sum(log_priors)
    log_q = (log_documents if q == "prior" else log_q_of_topics(q)) + sum(log_starts)
    usual = slice(1, None)  # the oracle's own differences of log Γ are rounded away at the first state
    density, ratio = (
        np.asarray(each(state)) for each in (Compiled(chain(q)).log_density, Compiled(chain(q)).log_ratio)
    )
    assert density[usual] == pytest.approx(log_p[usual], abs=1e-8)
    assert ratio[usual] == pytest.approx((log_p - log_q)[usual], abs=1e-5)  # float32 q
    assert np.all(np.isfinite(density))


_step = jax.jit(
    lambda chain, key, state, t, backward: chain.step(key, state, t, backward=backward), static_argnames="backward"
)


def by_state(x: np.ndarray, state: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` at x by linear interpolation, each x by the rows of `at` and `values`, (state, place), of its state."""
    found = np.empty(len(x))
    for k in np.unique(state):
        found[state == k] = np.interp(x[state == k], at[k], values[k])
    return found


def misfits(q: str, t: float, at: float, backward: bool, width: int = 1) -> tuple[float, float, float]:
    """p of chi-squared of z, and of Kolmogorov-Smirnov of log A and log η given z: particles drawn from π_t exactly,
    moved by one sweep at `at`, against π_t."""
    particles, rng, pi = 20_000, np.random.default_rng(1), place(q, t)
    probability = np.exp(pi.log_z - logsumexp(pi.log_z))
    chosen = rng.choice(len(probability), particles, p=probability)
    ends = cumulative(pi.log_total), cumulative(pi.log_eta)
    drawn = [by_state(rng.random(particles), chosen, end, np.broadcast_to(LOG, end.shape)) for end in ends]
    with jax.enable_x64(True):
        moved = _step(
            chain(q, width),
            jax.random.key(2),
            states(everything().z[chosen], *drawn, q, width),
            jnp.asarray(at),
            backward=backward,
        )
        moved = jax.tree.map(np.asarray, moved)
    code = (1 << np.arange(N_TOKENS)[::-1]) @ moved.topics.assignment[order_of(chain(q, width).topics)]
    seen, expected = np.bincount(code, minlength=len(probability)), probability * particles
    rare = expected < 5
    rare[np.argmax(expected)] = True
    seen, expected = (np.append(each[~rare], each[rare].sum()) for each in (seen, expected))
    after = moved.log_total, moved.log_eta
    places = [
        by_state(values, code, np.broadcast_to(LOG, end.shape), end) for values, end in zip(after, ends, strict=True)
    ]
    total, eta = (float(kstest(each, "uniform").pvalue) for each in places)
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1)), total, eta


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("t", [0.4, *(pytest.param(t, marks=pytest.mark.slow) for t in (0.0, 1.0))])
@pytest.mark.parametrize(
    "q", ["prior", *(pytest.param(q, marks=pytest.mark.slow) for q in ("responsibilities", "topics"))]
)
def test_a_step_leaves_its_place_on_the_path_as_it_is(q, t, backward):
    """Fixed keys; over keys one of these 54 fails by chance in 1 of 180."""
    assert min(misfits(q, t, t, backward)) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "q", ["responsibilities", *(pytest.param(q, marks=pytest.mark.slow) for q in ("prior", "topics"))]
)
def test_so_does_one_whose_tokens_are_drawn_in_groups(q):
    assert min(misfits(q, 0.6, 0.6, False, 2)) > 1e-4


@pytest.mark.slow  # the power of the tests above
@pytest.mark.parametrize("q", ["prior", "responsibilities", "topics"])
def test_a_step_for_another_place_does_not(q):
    of_topics, _, of_eta = misfits(q, 0.4, 0.9, False)
    assert of_topics < 1e-6
    assert of_eta < 1e-6


@pytest.mark.slow  # the evidence, which is exact only if they are, is in a shorter tier
@pytest.mark.parametrize("q", ["prior", "responsibilities"])
def test_first_draws_are_from_q(q):
    with jax.enable_x64(True):
        state = jax.jit(lambda chain, key: chain.init(key, 20_000))(chain(q), jax.random.key(4))
    for values, name in ((state.log_total, "concentration"), (state.log_eta, "topic_concentration")):
        first = start(q, name)
        assert kstest(np.exp(np.asarray(values)), gamma(first.shape, scale=1 / first.rate).cdf).pvalue > 1e-4


def test_slices_leave_a_skewed_density_with_two_modes_as_it_is():
    """The logarithm of a Gamma, and two normals far apart beside each other, from exact draws."""
    rng = np.random.default_rng(0)
    side = np.where(rng.random(20_000) < 0.3, -1.0, 1.0)
    with jax.enable_x64(True):
        begin = jnp.asarray([np.log(rng.gamma(0.7, size=20_000)), 1.5 * side + 0.4 * rng.normal(size=20_000)])

        def density(x: jax.Array) -> jax.Array:
            two = jnp.logaddexp(jnp.log(0.3) - (x[1] + 1.5) ** 2 / 0.32, jnp.log(0.7) - (x[1] - 1.5) ** 2 / 0.32)
            return jnp.stack([0.7 * x[0] - jnp.exp(x[0]), two])

        moved, sample = begin, jax.jit(lambda key, x: slice_sample(key, x, density))
        for index in range(3):
            moved = sample(jax.random.key(index), moved)
    before, after = np.asarray(begin), np.asarray(moved)
    assert kstest(np.exp(after[0]), gamma(0.7).cdf).pvalue > 1e-4
    assert np.mean(after[1] > 0) == pytest.approx(0.7, abs=0.015)
    assert np.mean((after[1] > 0) != (before[1] > 0)) > 0.05  # and they do move


def bracket(chain: HyperTopics | CollapsedTopics, seed: int, steps: int = 16) -> Bracket:
    key_pilot, key = jax.random.split(jax.random.key(seed))
    work = Effort(steps, 2, 16)
    ends = anneal(chain, key, work, temperature_profile(chain, key_pilot, work))[0]
    return Bracket(tuple(ends.forward.tolist()), tuple(ends.backward.tolist()), steps, 32, ends.anchor_error)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "q", ["prior", *(pytest.param(q, marks=pytest.mark.slow) for q in ("responsibilities", "topics"))]
)
def test_the_evidence_is_exact_within_its_error(q):
    tried = chain(q)
    if q == "topics":
        anchored = from_topics(csr_array(COUNTS), np.full(K, 0.45), 0.3, 3, TOPICS, jax.random.key(1)).chain
        tried = hyper_topics(MODEL, anchored, ABOUT)
    found = [bracket(tried, seed, 32) for seed in range(8)]
    assert all(abs(b.estimate - EXACT) <= 4 * b.standard_error + 0.01 for b in found)
    ratios = np.exp(np.concatenate([b.forward for b in found]) - EXACT)  # unbiased, whatever the temperatures
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(len(ratios))
    assert ratios.mean() == pytest.approx(1.0, abs=0.2)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["concentration", pytest.param("topic_concentration", marks=pytest.mark.slow)])
def test_one_of_them_may_be_given(name):
    """The other one integrated out."""
    model = LDA(MODEL.concentration, 0.3) if name == "concentration" else LDA(0.9, MODEL.topic_concentration)
    log_documents, log_words = likelihoods(np.exp(LOG))
    step = np.log(LOG[1] - LOG[0])
    prior = log_gamma(MODEL.inferred[name], LOG)
    if name == "concentration":
        given = dirichlet_multinomial(everything().of_word, np.array([0.3]))[:, 0]
        exact = float(logsumexp(logsumexp(log_documents + prior, axis=1) + given) + step)
    else:
        given = dirichlet_multinomial(everything().in_document, np.array([0.45]))[:, 0]
        exact = float(logsumexp(logsumexp(log_words + prior, axis=1) + given) + step)
    tried = evidence_chain(model, documents(csr_array(COUNTS)), (K,), None)
    found = [bracket(tried, seed) for seed in range(4)]
    assert all(abs(b.estimate - exact) <= 4 * b.standard_error + 0.01 for b in found)


@pytest.mark.slow  # the densities of priors of any width are in a shorter tier
def test_sharp_priors_are_given_numbers(float64):
    """And the exact evidence of given numbers comes back."""
    import oracles

    exact = oracles.lda_posterior(COUNTS, np.full(K, 0.45), 0.3).log_evidence
    sharp = LDA(GammaPrior(0.9e8, 1e8), GammaPrior(0.3e8, 1e8))
    tried = evidence_chain(sharp, documents(csr_array(COUNTS)), (K,), None)
    found = bracket(tried, 0)
    assert abs(found.estimate - exact) <= 4 * found.standard_error + 0.01


def separated(n_documents: int = 30, length: int = 40, each: int = 10) -> csr_array:
    """Three obvious topics, of so many words each."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(3), np.full(each, 1 / each))
    return csr_array(np.stack([rng.multinomial(length, topics[document % 3]) for document in range(n_documents)]))


@pytest.mark.slow  # given numbers have the same test in a shorter tier
def test_a_second_path_begins_where_the_first_one_ended():
    tried = evidence_chain(MODEL, documents(separated()), (3,), None)
    key_pilot, key = jax.random.split(jax.random.key(0))
    work = Effort(24, 2, 8)
    first, second = anneal(tried, key, work, temperature_profile(tried, key_pilot, work))
    assert (first.anchor_error is None, second.anchor_error is None) == (True, False)
    wide, narrow = np.mean(first.backward - first.forward), np.mean(second.backward - second.forward)
    assert narrow < 0.3 * wide
    lower = Bracket(tuple(first.forward.tolist()), tuple(first.backward.tolist()), 24, 16).lower
    assert lower < np.mean(second.backward) + 3.0  # nothing is contradicted


@pytest.mark.slow
def test_the_second_path_is_about_the_numbers_that_the_best_particle_settled_with(float64):
    tried = evidence_chain(MODEL, documents(separated()), (3,), None)
    state = jax.jit(lambda chain, key: chain.init(key, 4))(tried, jax.random.key(1))
    anchor = anchored_chain(tried, jax.random.key(0), [state] * 2)
    assert anchor is not None
    begun = anchor.chain
    assert isinstance(begun, HyperTopics)
    assert begun.total is not None
    shape, rate = begun.total.start
    assert 0 < shape / rate < 0.5  # documents of one topic each
    assert begun.topics.alpha.sum() >= 1.5
    assert begun.total.prior == tried.total.prior


@pytest.mark.thorough
@pytest.mark.parametrize("model", [MODEL, LDA(0.9, MODEL.topic_concentration), LDA(MODEL.concentration, 0.3)])
def test_the_fit_s_bound_is_below_the_evidence_with_hyper_parameters_integrated_out(model):
    """As the bound at given numbers is below theirs; and it is close, for so few tokens."""
    found = estimator(model, documents(csr_array(COUNTS))).fit((K,), jax.random.key(0), None)
    log_documents, log_words = likelihoods(np.exp(LOG))
    step = np.log(LOG[1] - LOG[0])
    total = log_gamma(MODEL.inferred["concentration"], LOG) + log_documents
    eta = log_gamma(MODEL.inferred["topic_concentration"], LOG) + log_words
    of_total = logsumexp(total, axis=1) + step if "concentration" in model.inferred else None
    of_eta = logsumexp(eta, axis=1) + step if "topic_concentration" in model.inferred else None
    if of_total is None:
        of_total = dirichlet_multinomial(everything().in_document, np.array([0.45]))[:, 0]
    if of_eta is None:
        of_eta = dirichlet_multinomial(everything().of_word, np.array([0.3]))[:, 0]
    exact = float(logsumexp(of_total + of_eta))
    assert exact - 3.0 < found.log_lower < exact
    assert not found.model.inferred


def test_what_a_concentration_adds_to_the_bound():
    """Against quadrature by SciPy; and of a sharp prior it is the density at its mean."""
    from scipy.integrate import quad

    mild = Concentration(GammaPrior(2.0, 1.5), 5, 4, -30.0, 4)

    def integrand(x: float, power: float) -> float:
        return x**power * np.exp(mild.log_density(x) + gamma.logpdf(x, 2.0, scale=1 / 1.5) + 23.0)

    (whole, _), (first, _) = (quad(integrand, 0, 60, args=(power,), points=[0.5, 2.0]) for power in (0.0, 1.0))
    assert mild.log_integral() == pytest.approx(np.log(whole) - 23.0, abs=1e-6)
    assert mild.mean() == pytest.approx(first / whole, rel=1e-6)
    sharp = Concentration(GammaPrior(2e8, 1e8), 5, 4, -30.0, 4)
    assert sharp.log_integral() == pytest.approx(sharp.log_density(2.0), abs=1e-5)


@pytest.mark.slow
def test_paths_may_begin_at_simulated_latents():
    """Both ends of a bracket that assumes nothing, on data drawn with hyper-parameters from their priors."""
    data = documents(separated(10, 8, 4))
    simulated = simulated_like(data, MODEL, (2,), jax.random.key(5))
    assert set(simulated.globals) == {"concentration", "topic_concentration", "topic_word"}
    tried = evidence_chain(MODEL, simulated.data, (2,), None)
    ends = anneal_simulated(tried, jax.random.key(0), simulated, Effort(100, 2, 8))
    assert -1.0 < np.mean(ends.backward) - np.mean(ends.forward) < 2.0


@pytest.mark.thorough
def test_simulated_hyper_parameters_are_from_their_priors():
    data = documents(csr_array(np.ones((1, 2), np.int64)))
    drawn = [simulated_like(data, MODEL, (2,), jax.random.key(seed)).globals for seed in range(300)]
    for name, prior in MODEL.inferred.items():
        values = np.exp([each[name].log_value for each in drawn])
        assert kstest(values, gamma(prior.shape, scale=1 / prior.rate).cdf).pvalue > 1e-4


@pytest.mark.slow
def test_a_search_integrates_them_out_and_is_kept(tmp_path):
    corpus = lv.Corpus.from_matrix(separated(6, 4, 2))
    model = LDA(GammaPrior(2.0, 1.0), GammaPrior(1.0, 4.0))
    result = lv.search(model, corpus, prior=lv.sizes.Poisson(3), max_size=2, starts=1, seed=0, progress=False)
    assert "topic_concentration ~ Gamma(1, rate 4)" in str(result)
    fitted = result.fit(2)
    assert not fitted.model.inferred  # the means under the fit's q
    assert fitted.transform(corpus).shape == (6, 2)
    assert fitted.alpha.shape == (2,)
    result.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    assert again.evaluator.base_model.describe() == model.describe()
    assert again.posterior().equals(result.posterior())


@pytest.mark.slow
def test_a_search_finds_obvious_topics_without_numbers_and_is_audited():
    corpus = lv.Corpus.from_matrix(separated(15, 12, 4))
    model = LDA(GammaPrior(2.0, 1.0), GammaPrior(1.0, 4.0))
    result = lv.search(model, corpus, prior=lv.sizes.Poisson(3), max_size=4, starts=1, seed=0, progress=False)
    assert result.best_size == (3,)
    audit = result.audit([3], progress=False)
    assert np.isfinite(audit.rows[0].off_by)


@pytest.mark.thorough
def test_draws_of_hyper_parameters():
    """Their posterior at one size: a table of it with diagnostics."""
    trace = lv.sample(MODEL, separated(15, 12, 4), size=3, chains=2, draws=40, warmup=20, seed=0, progress=False)
    assert trace["concentration"].shape == trace["topic_concentration"].shape == (2, 40)
    assert np.all(trace["topic_concentration"] > 0)
    assert {"concentration", "topic_concentration"} <= set(trace.diagnostics().index)


@pytest.mark.slow
def test_hyper_parameters_that_are_given_are_not_drawn():
    given = lv.sample(
        LDA(1.0, MODEL.topic_concentration), separated(15, 12, 4), size=3, chains=1, draws=3, progress=False
    )
    assert "concentration" not in [quantity.name for quantity in given.quantities]


def test_what_needs_numbers_says_so():
    corpus = lv.Corpus.from_matrix(separated())
    with pytest.raises(ValueError, match="plug-in form"):
        lv.search(MODEL, corpus, prior=lv.sizes.Poisson(3), evidence="plug-in", max_size=2, progress=False)
    with pytest.raises(ValueError, match="GammaPrior"):
        MODEL.alpha(MODEL.active((2,), (2,)))
    with pytest.raises(ValueError, match="positive number"):
        LDA(GammaPrior(0.0, 1.0))
    with pytest.raises(ValueError, match="expected numbers"):
        LDA(GammaPrior(), None, lv.models.families.PointSimplex())
