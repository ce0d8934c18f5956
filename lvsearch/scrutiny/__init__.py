"""What may be doubted in an answer: evidence audited, priors changed, fewer units asked, components looked for."""
