import importlib
import json
import os
import sys

sys.path.insert(0, "/app")
median = importlib.import_module(os.environ["MODULE"]).median
odd = median([3, 1, 2]) == 2
even = median([4, 1, 3, 2]) == 2.5
print(json.dumps({"reward": (odd + even) / 2, "odd": int(odd), "even": int(even)}))
