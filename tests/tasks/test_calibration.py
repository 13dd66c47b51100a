import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from components.comparison import calibration


@pytest.fixture(scope="module")
def judged() -> tuple[np.ndarray, np.ndarray]:
    """Logits of three labels that are three times as sure as they should be, and labels drawn as they should be: (examples, labels)."""
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(4000, 3))
    labels = np.array([rng.choice(3, p=row) for row in calibration.probabilities(honest)])
    return 3 * honest, labels


def test_errors_are_those_of_the_libraries(judged):
    logits, labels = judged
    likely = calibration.probabilities(logits)
    theirs = multiclass_calibration_error(torch.tensor(likely), torch.tensor(labels), num_classes=3, n_bins=calibration.BINS)
    assert calibration.expected_calibration_error(likely, labels) == pytest.approx(float(theirs), abs=1e-6)
    assert calibration.brier_score(likely, labels) == pytest.approx(brier_score_loss(labels, likely, scale_by_half=False))


def test_by_hand():
    likely = np.array([[0.95, 0.05], [0.95, 0.05], [0.3, 0.7], [0.0, 1.0]])
    labels = np.array([0, 1, 1, 1])
    assert calibration.expected_calibration_error(likely, labels) == pytest.approx((2 * 0.45 + 0.3 + 0) / 4)
    assert calibration.brier_score(likely, labels) == pytest.approx((2 * 0.05**2 + 2 * 0.95**2 + 2 * 0.3**2) / 4)
    counts = calibration.reliability(likely, labels)[:, 0]
    assert counts.sum() == 4 and counts[14] == 3 and counts[10] == 1


def test_temperature_brings_back_what_is_too_sure(judged):
    logits, labels = judged
    assert calibration.fitted_temperature(logits, labels) == pytest.approx(3, rel=0.1)
    splits = {"dev": logits[:2000], "test": logits[2000:]}
    plain, one = calibration.split_probabilities(splits, labels[:2000], scaled=False)
    scaled, temperature = calibration.split_probabilities(splits, labels[:2000], scaled=True)
    assert one == 1 and temperature == pytest.approx(3, rel=0.15)
    for split, own in (("dev", labels[:2000]), ("test", labels[2000:])):
        before, after = calibration.evaluate(plain[split], own), calibration.evaluate(scaled[split], own)
        assert before["expected_calibration_error"] > 0.2 and after["expected_calibration_error"] < 0.05
        assert after["brier_score"] < before["brier_score"]
        assert (scaled[split].argmax(1) == plain[split].argmax(1)).all()


def test_a_half_of_dev_does_not_see_its_own_labels(judged):
    """Labels of the even rows that say the opposite change the odd rows' probabilities only."""
    logits, labels = judged[0][:400], judged[1][:400].copy()
    before, _ = calibration.split_probabilities({"dev": logits}, labels, scaled=True)
    labels[::2] = (labels[::2] + 1) % 3
    after, _ = calibration.split_probabilities({"dev": logits}, labels, scaled=True)
    assert (before["dev"][::2] == after["dev"][::2]).all() and (before["dev"][1::2] != after["dev"][1::2]).any()


def test_a_label_that_training_has_not_seen_says_nothing_of_the_temperature(judged):
    """One such example of dev made all probabilities nearly equal."""
    logits, labels = judged
    logits = np.column_stack([logits, np.full(len(logits), calibration.IMPOSSIBLE)])
    seen, rare = calibration.fitted_temperature(logits, labels), labels.copy()
    rare[0] = logits.shape[1] - 1
    assert calibration.fitted_temperature(logits, rare) == pytest.approx(seen, rel=0.05)
    assert calibration.fitted_temperature(logits[:1], rare[:1]) == 1


def test_certainty_has_an_end():
    logits, labels = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    assert 0.05 <= calibration.fitted_temperature(logits, labels) < 0.06
