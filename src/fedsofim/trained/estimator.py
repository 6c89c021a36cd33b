"""A trained model as a scikit-learn classifier or regressor. Importing this file needs scikit-learn."""

from typing import Any

import numpy as np

from fedsofim.errors import InputError
from fedsofim.tasks import LABELS
from fedsofim.trained.model import Trained

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # pyright: ignore[reportMissingImports]
except ImportError:
    raise InputError("this needs scikit-learn, which is not installed: pip install 'fedsofim[sklearn]'") from None


class _Fitted(BaseEstimator):
    """Predicts as the model does, for scikit-learn's own tools: scorers, plots, the last step of a pipeline."""

    def __init__(self, model: Trained) -> None:
        self.model = model

    @property
    def n_features_in_(self) -> int:
        schema = self.model.schema
        return int(np.prod(self.model.shape)) if schema is None else len(schema.inputs)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> Any:
        """It is trained already, under a budget that scikit-learn knows nothing of."""
        raise InputError("a trained model is not fitted again by scikit-learn, which keeps no budget; use fs.train")

    def predict(self, X: Any) -> np.ndarray:
        return self.model.predict(X)

    def __getstate__(self) -> dict[str, Any]:
        from fedsofim.trained.folder import document_of, numbers_of

        self.model.check_exportable("a pickle")
        return {"document": document_of(self.model), "numbers": numbers_of(self.model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from fedsofim.trained.folder import rebuilt

        self.model = rebuilt(state["document"], state["numbers"])


class FedsofimClassifier(ClassifierMixin, _Fitted):
    """Of classes; of several labels, 0 or 1 for each (records x labels)."""

    @property
    def classes_(self) -> Any:
        labels = self.model.labels
        return [np.array([0, 1]) for _ in labels] if self.model.task.kind == LABELS else np.array(labels)

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.model.predict_proba(X)


class FedsofimRegressor(RegressorMixin, _Fitted):
    """Of numbers and counts, in their units."""
