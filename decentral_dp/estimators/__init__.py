"""Private estimators in scikit-learn's form: parameters at construction, `fit`, and results in names that end in _."""

from decentral_dp.estimators.auc_classifier import PrivateAUCClassifier
from decentral_dp.estimators.decentralised import DecentralisedClassifier, DecentralisedRegressor
from decentral_dp.estimators.logistic_regression_cv import PrivateLogisticRegressionCV
from decentral_dp.estimators.two_classes import PrivacyWarning, ScaleWarning
