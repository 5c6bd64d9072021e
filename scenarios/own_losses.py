"""Per-record losses for own_losses.toml: softmax regression with one shared log-regularisation strength."""

import torch


def p(n_features, n_classes):
    """Dimension of the upper variable x: the logarithm of the regularisation strength."""
    return 1


def q(n_features, n_classes):
    """Dimension of the lower variable y: one weight per class and feature."""
    return n_classes * n_features


def _scores(y, features):
    return y.reshape(-1, features.shape[-1]) @ features


def lower_loss(x, y, features, label):
    """Cross-entropy of one train record."""
    return -torch.log_softmax(_scores(y, features), dim=-1).gather(-1, label.reshape(1)).squeeze()


def upper_loss(x, y, features, label):
    """Cross-entropy of one validation record."""
    return lower_loss(x, y, features, label)


def regulariser(x, y):
    """Touches no record: exact, never clipped."""
    return 0.5 * torch.exp(x[0]) * (y**2).sum()


def predict(y, features):
    """Class scores of one record."""
    return _scores(y, features)
