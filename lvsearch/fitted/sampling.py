"""`lv.sample`: draws from the posterior of a model by several MCMC chains, and storage of these draws in a folder."""

from pathlib import Path
from typing import Any

import jax

from lvsearch.data.kinds import data_for, require_model
from lvsearch.files.storage import CorruptFolderError, new_folder, read_folder, write_folder
from lvsearch.inference.chains import Chain, Sampler
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.diagnostics import CLOSE_RHAT
from lvsearch.inference.evidence import sampled_chain
from lvsearch.inference.processes import process_sampler
from lvsearch.inference.sampling import Recorder, Trace, recorder, run
from lvsearch.inference.sampling.parameters import with_parameters
from lvsearch.models.contract import Model
from lvsearch.models.families import PointGaussian, PointMean, PointProbability, PointSimplex
from lvsearch.models.plain_arguments import as_path, checked_seed, shortened_repr, whole_number, yes_or_no
from lvsearch.progress import progress_bar
from lvsearch.sizing.sizes import Size, as_size

POINTS = (PointGaussian, PointMean, PointProbability, PointSimplex)
"""Families of latent variables that are fitted as single values, so that they have no posterior to draw from."""
KIND = "trace"
FEWEST_TO_JUDGE = 200
"""The fewest draws of a chain from which `thin` is chosen: with fewer, R̂ may exceed its limit by chance alone."""
MOST_DRAWN = 10_000_000
"""The most latent variables that one chain draws, in all its sweeps, before `thin` is no longer doubled by default."""
STARTS = 1
"""A number folded into the random key of the chains' starting states, so that it differs from the key of the sweeps."""


def sample(
    model: Model,
    data: Any,
    *,
    size: int | Size | None = None,
    chains: int = 4,
    draws: int = 1000,
    warmup: int | None = None,
    thin: int | None = None,
    seed: int = 0,
    units: bool = False,
    parameters: bool = False,
    after: Trace | None = None,
    progress: bool = True,
) -> Trace:
    """Return draws from p(latent variables | data, size), made by MCMC, mostly by Gibbs sampling.

    model: a model such as `lv.models.LDA()`.
    data: the data, or a form from which the model's data can be made, such as a matrix or texts.
    size: the number of components, or one number per size variable. A nonparametric process has no size and takes None.
    chains: the number of chains, run at once. They start at independent draws of the prior; those of a process start
        far apart, with few components and with many.
    draws: the number of draws kept of each chain.
    warmup: the number of sweeps before the draws. By default it is `draws` times `thin`, or `draws` without `thin`.
    thin: the number of sweeps from one draw to the next. By default it is 1 at first. Then it is doubled, which keeps
        every second draw and makes as many new ones, until R-hat of the log density, and of all that is recorded
        without `units` and `parameters`, is at most 1.02. It is not doubled where a chain would then draw more than ten
        million latent variables (rows, or tokens, times sweeps), for processes, and with fewer than 200 draws.
    units: also record the latent variables of each document or row, (chain, draw, unit, …), which may be large.
    parameters: also record the weights and parameters that a chain integrates out, drawn given the rest of each draw
        (of LDA `topic_word`, and with `units` the `proportions` of each document). Distributions over many words are
        large: (chain, draw, topic, word).
    after: a trace made with the same other arguments, interrupted or of fewer draws, to continue. It keeps its own
        warm-up, and its own `thin` unless that is doubled. The result has the bits of one run if the run was
        interrupted, or if `thin` and `warmup` were given.
    progress: show a progress bar.

    Which sampler runs depends on the model. LDA and finite mixtures have parameters and proportions integrated out, and
    draw one indicator after another (Griffiths & Steyvers 2004; Blei 2004, §3.7, Eq. 5.13). So does `DPMixture`, and so
    do `HDP` and `HDPMixture`, except for the weights that units share (Teh et al. 2006, §5.3). Hidden Markov models
    draw a whole path at once (Chib 1996), and `HLDA` a path and the levels of one document after another (Blei 2004,
    §6.2.1). Block models draw the clusters of rows and of columns. The independent-normal mixture has Gibbs steps of
    its own (Richardson & Green 1997). Every other model is sampled by Gibbs steps, one latent variable after another,
    whose distributions given all others follow from the gradient of its log-joint (Blei 2004, §2.2.1).

    Returns a trace with these quantities, (chain, draw, …). Components of different draws need not correspond.

    - `log_density`: log p(data, latent variables that the chain draws), in nats; without those of `parameters`.
    - `occupied`: the number of components that hold at least one observation.
    - `rows` or `tokens`: the number of observations in each component, where parameters are integrated out.
    - The model's latent variables by name, where they are not integrated out.
    - The hyper-parameters of LDA and of components, where they have priors.
    - `nodes`: the number of nodes at each level of a tree.
    - With `parameters`, all other latent variables that the units share, by name.
    - With `parameters` and `units`, `log_likelihood`: log p(unit given all that the units share) in nats, with the
      unit's own latent variables summed out. Only where these are indicators: the component of a row or document, the
      path of a sequence.

    Of mixtures of rows, `lv.mixture_posterior(model, data, prior=lv.sizes.Table([0, 0, 1])).draws()` has whole draws
    too, here with three components, with likelihoods of the rows, predictions and relabelling.

    Ctrl-C keeps the draws made so far.

    Raises ValueError for a process with a size, another model without one or with one that it cannot have,
    `parameters` of a process, trees with paths of several lengths, estimated parameters, bad data, and counts below 1.
    """
    _check_model(model)
    seed = checked_seed(seed)
    if (size is None) != model.process:
        raise ValueError(
            f"got size={size} for {type(model).__name__}, expected "
            + ("no size: a process has none" if model.process else f"one: the number of {model.size_names[0]}")
        )
    if size is not None and model.only_size not in (None, as_size(size, len(model.size_names))):
        raise ValueError(f"got size={size}, expected {model.only_size}, the only size that {type(model).__name__} has")
    if not isinstance(after, Trace | None):
        raise ValueError(f"got after={after!r}, expected a trace that lv.sample or lv.load_trace gave, or None")
    chains, draws = whole_number("chains", chains, least=1), whole_number("draws", draws, least=1)
    pace = whole_number("thin", thin, least=1) if thin is not None else 1 if after is None else after.thin
    units = yes_or_no("units", units)
    if yes_or_no("parameters", parameters) and model.process:
        raise ValueError(
            f"got parameters=True for {type(model).__name__}, expected False: a process has any number of components, "
            "whose parameters its chains do not draw"
        )
    # a trace that is continued keeps its own warm-up, so that the result equals one longer run
    if warmup is None:
        warmup = draws * pace if after is None else after.warmup
    warmup = whole_number("warmup", warmup, least=0)
    dataset = data_for(model, data).dataset()
    prepare_programs()
    chain, record, judged = _sampler(model, dataset, size, seed, chains, units, parameters)
    slowest = pace if thin is not None else _slowest_pace(chain, draws, warmup)

    def at_pace(pace: int, after: Trace | None) -> Trace:
        """Return the trace with one draw in `pace` sweeps; it goes on from `after`."""
        name = f"{chains} chains" if pace == 1 else f"{chains} chains, one draw in {pace} sweeps"
        made = 0 if after is None else after.sweep
        with progress_bar(warmup + draws * pace, name, "sweep", wanted=progress, initial=made) as bar:
            return run(
                chain,
                jax.random.key(seed),
                chains=chains,
                draws=draws,
                warmup=warmup,
                thin=pace,
                recorder=record,
                after=after,
                done=bar.update,
            )

    trace = at_pace(pace, after)
    # an interrupted run has fewer draws; R̂ that is not known asks for nothing
    while 2 * trace.thin <= slowest and trace.draws == draws and trace.largest_rhat(judged) > CLOSE_RHAT:
        trace = at_pace(2 * trace.thin, trace.every(2))
    return trace


def _slowest_pace(chain: Sampler, draws: int, warmup: int) -> int:
    """Return the most sweeps from one draw to the next to which `thin` is doubled by default; 1 leaves it as it is.

    chain: the sampler. draws, warmup: the draws of a chain, and the sweeps before them.
    """
    if draws < FEWEST_TO_JUDGE or not isinstance(chain, Chain):
        return 1
    return (MOST_DRAWN // chain.elements - warmup) // draws


def _sampler(
    model: Model, data: Dataset, size: int | Size | None, seed: int, chains: int, units: bool, parameters: bool
) -> tuple[Sampler, Recorder, tuple[str, ...]]:
    """Return the MCMC sampler of a model, the recorder that picks the quantities to keep from the chain's state, and
    the names of those by whose R̂ chains are judged: what is recorded without `units` and `parameters`.

    size: the number of components; None for a nonparametric process, whose starts are drawn from `seed`.
    chains: the number of chains, which a process' sampler needs for its starts.
    units: also record the latent variables of each document or row.
    parameters: also record the parameters that the chain integrates out.
    """
    if size is not None:
        chain = sampled_chain(model, data, as_size(size, len(model.size_names)))
        record = recorder(chain, data, units=units)
        judged = tuple(quantity.name for quantity in recorder(chain, data, units=False).quantities)
        return chain, with_parameters(record, chain, model, data, units=units) if parameters else record, judged
    key = jax.random.fold_in(jax.random.key(seed), STARTS)
    return *process_sampler(model, data, key, chains=chains, units=units), ()


def save_trace(trace: Trace, folder: str | Path) -> None:
    """Write a trace to a new folder: either the whole folder appears or none.

    trace: the draws of `lv.sample`.
    folder: the folder to make.

    Raises FileExistsError if the folder exists already, and ValueError for anything but a trace and a path.
    """
    if not isinstance(trace, Trace):
        raise ValueError(f"got trace={shortened_repr(trace)}, expected the draws that lv.sample returned")
    folder = as_path("folder", folder)
    settings, arrays = trace.to_storage()
    with new_folder(folder):
        write_folder(folder, {"kind": KIND, **settings}, arrays)


def load_trace(folder: str | Path) -> Trace:
    """Return the trace saved in a folder, to read or to continue (`lv.sample(…, after=trace)`).

    Raises FileNotFoundError if there is no such folder, and `CorruptFolderError` (a ValueError) if it holds no trace or
    is damaged.
    """
    body, arrays = read_folder(as_path("folder", folder))
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise CorruptFolderError(f"got {folder}, which holds no trace; expected one written by save_trace")
    try:
        return Trace.from_storage(body, arrays)
    except (KeyError, TypeError) as error:
        raise CorruptFolderError(f"{folder} is damaged ({error!r}); restore it from a copy") from error


def _check_model(model: Any) -> None:
    """Raise ValueError unless `model` is a model whose parameters all have a prior, so that they can be drawn."""
    require_model(model)
    estimated = [site for site, each in model.globals().items() if isinstance(each.family, POINTS)]
    if estimated:
        raise ValueError(
            f"got {type(model).__name__} with estimated {', '.join(estimated)}; expected a model whose parameters have "
            "a prior, from whose posterior they can be drawn: leave plug_in() out"
        )
