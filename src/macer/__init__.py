"""macer: train and certify provably robust image classifiers."""
