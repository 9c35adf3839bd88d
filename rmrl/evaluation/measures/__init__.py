"""A judge's statistics: shares with intervals, agreement, calibration, length, weights.

Wilson intervals, the bootstrap and correlations come from scipy, kappa, the reliability curve, the
Brier score and regressions from scikit-learn. Krippendorff's alpha and the expected calibration
error are in neither and computed here.
"""
