"""What test code imports and a sandbox lacks: the few names of pytest that tests use as functions.

Only judges get it; the program never does.
"""

_PYTEST = """
def _install_pytest():
    import re, sys, types

    class approx:
        __array_ufunc__ = None
        def __init__(self, expected, rel=None, abs=None, nan_ok=False):
            self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok
        def __eq__(self, actual):
            return self._same(actual, self.expected)
        def __ne__(self, actual):
            return not self == actual
        __hash__ = None
        def _same(self, actual, expected):
            if isinstance(expected, dict):
                return (isinstance(actual, dict) and actual.keys() == expected.keys()
                        and all(self._same(actual[k], v) for k, v in expected.items()))
            if isinstance(expected, (list, tuple)):
                return (isinstance(actual, (list, tuple)) and len(actual) == len(expected)
                        and all(map(self._same, actual, expected)))
            if isinstance(expected, bool) or not isinstance(expected, (int, float, complex)):
                return actual == expected
            if isinstance(actual, bool) or not isinstance(actual, (int, float, complex)):
                return False
            if actual == expected:
                return True
            if actual != actual and expected != expected:
                return self.nan_ok
            size = abs(expected)
            if size == float("inf") or size != size:
                return False
            least = 1e-12 if self.abs is None else self.abs
            share = (1e-6 if self.abs is None else 0.0) if self.rel is None else self.rel
            return abs(actual - expected) <= max(least, share * size)

    class raises:
        def __init__(self, kind, *call, match=None, **kwargs):
            self.kind, self.match = kind, match
            if call:
                with self:
                    call[0](*call[1:], **kwargs)
        def __enter__(self):
            return self
        def __exit__(self, kind, value, trace):
            if kind is None:
                raise AssertionError("nothing was raised")
            if not issubclass(kind, self.kind):
                return False
            self.type, self.value = kind, value
            if self.match is not None and re.search(self.match, str(value)) is None:
                raise AssertionError("another message was raised")
            return True

    def fail(reason=""):
        raise AssertionError(reason)

    module = types.ModuleType("pytest")
    module.approx, module.raises, module.fail = approx, raises, fail
    sys.modules.setdefault("pytest", module)
_install_pytest()
"""


def prelude_of(source: str) -> str:
    """Statements to run before test code."""
    return _PYTEST if "pytest" in source else ""
