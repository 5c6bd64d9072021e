"""Private estimators in scikit-learn's form: parameters at construction, `fit`, and results in names that end in _."""

from decentral_dp.estimators.decentralised import DecentralisedClassifier, DecentralisedRegressor
from decentral_dp.estimators.shared import PrivacyWarning, ScaleWarning
