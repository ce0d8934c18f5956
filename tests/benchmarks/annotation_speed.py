"""How long does a model of images with captions take to fit at the thesis' scale? 11,091 images of corel16k, K = 200.

    python tests/benchmarks/annotation_speed.py [--models CorrLDA GMLDA GMMixture] [--factors 200] [--repeats 1]

Timed: `lv.fit` from scratch to the end, its evidence in float64 included; the first row with compiling, as a person
meets it. Not timed: reading the files. 80 % of the images, drawn after shuffling (the rows are in the order of the
discs), the others for the caption perplexity beside each time. The bar: under 3 minutes on two cores for Corr-LDA.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import lvsearch as lv


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["CorrLDA"], choices=["CorrLDA", "GMLDA", "GMMixture"])
    parser.add_argument("--factors", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1, help="fits with other seeds; only the first compiles")
    options = parser.parse_args()
    if "LVSEARCH_DATA" not in os.environ:
        sys.exit("set LVSEARCH_DATA to the folder that holds corel16k/")
    folder = Path(os.environ["LVSEARCH_DATA"]) / "corel16k"
    files = [folder / f"corel16k008_{name}" for name in ("blobs.ldac", "words.ldac", "vocab.txt")]
    train, test = lv.PairedCorpus.from_ldac(*files, n_tokens=500).split(0.2, seed=0)
    print(f"{train.describe()}; {options.factors} factors", flush=True)
    print(f"{'model':<10} {'seed':>4} {'seconds':>8} {'passes':>6} {'bound per image':>16} {'caption perplexity':>19}")
    for name in options.models:
        model = getattr(lv.models, name)(
            5.0, lv.models.MultinomialComponents(0.1), lv.models.MultinomialComponents(0.1)
        )
        for seed in range(options.repeats):
            began = time.perf_counter()
            fitted = lv.fit(model, train, size=options.factors, seed=seed)
            seconds = time.perf_counter() - began
            perplexity = fitted.caption_scores(test).perplexity
            bound = fitted.evidence.lower / len(train)
            print(
                f"{name:<10} {seed:>4} {seconds:8.1f} {fitted.estimate.passes:6} {bound:16.2f} {perplexity:19.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
