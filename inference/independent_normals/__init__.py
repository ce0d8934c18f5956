"""Mixtures of Gaussians whose means and precisions are independent a priori: both integrated out, one by quadrature."""

from lvsearch.inference.independent_normals.chain import IndependentNormalParts, log_marginals

__all__ = ["IndependentNormalParts", "log_marginals"]
