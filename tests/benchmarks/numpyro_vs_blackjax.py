"""Time what an evidence of a given precision costs: `lv.from_numpyro` beside BlackJAX's adaptive tempered SMC.

    python tests/benchmarks/numpyro_vs_blackjax.py [--seeds 16]

The model is a logistic regression of 200 rows on 4 columns, the same for both. Each row of the table is a process of
its own on the CPU, with nothing compiled before. The spread is the standard deviation of log p(data) over seeds. The
cost of an estimate is its seconds of the processor times its variance: that of one nat is proportional to it, whatever
the number of particles. "Further" estimates are those after the first. BlackJAX's are calls of one compiled function;
ours are whole searches of one size, each of which traces the model again (a good second). BlackJAX's error is not known
from one estimate; ours come with one.

Needs `pip install blackjax`. The target's effective sample size is .5 of the particles, and moves are five trajectories
of Hamiltonian Monte Carlo with 8 steps of .1, which suits this model; its lengths are not tuned, as ours are.
"""

import argparse
import os
import subprocess
import sys
import tempfile

DATA = """
import time
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
random = np.random.default_rng(0)
columns = random.normal(size=(200, 4))
chance = 1 / (1 + np.exp(-columns @ np.array([1.0, -1.0, 0.5, 0.0])))
answers = (random.random(200) < chance).astype(float)
def timed(work, *arguments):
    began = time.process_time()
    return work(*arguments), time.process_time() - began
def report(each):
    found, seconds = zip(*each)
    print(seconds[0], np.mean(seconds[1:]), np.mean(found), np.std(found, ddof=1))
"""
OURS = """
import numpyro
import numpyro.distributions as dist
import lvsearch as lv
def model(size, data):
    weights = numpyro.sample("weights", dist.Normal(0, 2).expand([4]).to_event(1))
    with numpyro.plate("row", 200):
        numpyro.sample("answer", dist.Bernoulli(logits=columns @ weights), obs=jnp.asarray(data))
"""
SEARCHED = """
def estimate(seed):
    found = lv.search(lv.from_numpyro(model), answers, max_size=1, seed=seed, progress=False)
    return float(found.posterior()["log_evidence"].iloc[0])
report(timed(estimate, seed) for seed in range({seeds}))
"""
ANNEALED = """
def annealed(seed):
    evaluator = lv.from_numpyro(model).evaluator(answers, seed)
    evaluator.evaluate((1,), None, 0)
    fit, seconds = timed(evaluator.evaluate, (1,), None, 0)
    return fit.brackets[0].estimate, seconds
report(annealed(seed) for seed in range({seeds}))
"""
THEIRS = """
import blackjax
from blackjax.smc import resampling
def log_likelihood(weights):
    logits = columns @ weights
    return jnp.sum(answers * logits - jnp.logaddexp(0, logits))
def log_prior(weights):
    return -jnp.sum(weights**2) / 8 - 2 * jnp.log(8 * jnp.pi)
@jax.jit
def run(key):
    settings = dict(
        step_size=jnp.full(1, 0.1), inverse_mass_matrix=jnp.ones((1, 4)), num_integration_steps=jnp.full(1, 8)
    )
    sampler = blackjax.adaptive_tempered_smc(
        log_prior, log_likelihood, blackjax.hmc.build_kernel(), blackjax.hmc.init, settings,
        resampling.systematic, target_ess=0.5, num_mcmc_steps=5,
    )
    key_begin, key = jax.random.split(key)
    state = sampler.init(2 * jax.random.normal(key_begin, ({particles}, 4)))
    def step(carry):
        key, state, total = carry
        key, own = jax.random.split(key)
        state, info = sampler.step(own, state)
        return key, state, total + info.log_likelihood_increment
    return jax.lax.while_loop(lambda carry: carry[1].tempering_param < 1, step, (key, state, 0.0))[2]
def estimate(seed):
    return float(run(jax.random.key(seed)))
report(timed(estimate, seed) for seed in range({seeds}))
"""


def in_process(code: str) -> tuple[float, ...]:
    """Return the numbers that a new process prints last; it finds no compiled programs."""
    with tempfile.TemporaryDirectory(prefix="lvsearch-numpyro-") as folder:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COMPILATION")}
        environment |= {"LVSEARCH_CACHE": folder, "JAX_PLATFORMS": "cpu"}
        child = [sys.executable, "-c", DATA + code]
        printed = subprocess.run(child, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return tuple(float(word) for word in printed.splitlines()[-1].split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=16, help="estimates of each row")
    parser.add_argument("--particles", type=int, nargs="*", default=[256, 1024], help="of BlackJAX, one row each")
    arguments = parser.parse_args()
    seeds = arguments.seeds
    rows = {
        "lvsearch": OURS + SEARCHED.format(seeds=seeds),
        "lvsearch, annealing alone": OURS + ANNEALED.format(seeds=seeds),
    }
    rows |= {f"BlackJAX, {n} particles": THEIRS.format(seeds=seeds, particles=n) for n in arguments.particles}
    print("| sampler | first, s | further, s | mean log p(data) | spread | further seconds × variance |")
    print("|---|---|---|---|---|---|")
    for name, code in rows.items():
        first, further, mean, spread = in_process(code)
        cost, compiled = further * spread**2, "–" if "alone" in name else f"{first:.1f}"
        print(f"| {name} | {compiled} | {further:.2f} | {mean:.2f} | {spread:.3f} | {cost:.4f} |", flush=True)


if __name__ == "__main__":
    main()
