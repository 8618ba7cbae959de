#!/bin/bash
cat > /app/counter.py <<'END'
import sys

with open(sys.argv[1]) as file:
    print(sum(1 for _ in file))
END
