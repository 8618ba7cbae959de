"""Programs for bundled problems that were written from the statements, another way each."""

OTHERS = {
    "spans": """
def $f(spans):
    # set-based: "at most k between": number of whole numbers strictly between?
    out = []
    for s, e in sorted(spans):
        if out and s - out[-1][1] <= $k:
            out[-1] = [out[-1][0], max(out[-1][1], e)]
        else:
            out.append([s, e])
    return out
""",
    "settings": """
def solve(text):
    order = []
    d = {}
    for raw in text.split("\\n"):
        line = raw.strip()
        if line == "" or line[0] == "$mark":
            continue
        i = line.index("$eq")
        n = line[:i].strip()
        v = line[i + len("$eq") :].strip()
        if v == "":
            if n in d:
                del d[n]
                order.remove(n)
        else:
            if n not in d:
                order.append(n)
            d[n] = v
    return "\\n".join(n + "$eq" + d[n] for n in order) if order else "empty"
""",
    "word_ranking": """
import re


def solve(text):
    c = {}
    for w in re.findall(r"\\S+", text.lower()):
        c[w] = c.get(w, 0) + 1
    ws = sorted(c)
    if "$order" == "length":
        ws.sort(key=len)
    ws.sort(key=c.get, reverse=True)
    return "\\n".join(w + " " + str(c[w]) for w in ws[:$k])
""",
    "waiting_room": """
from collections import deque


class $f:
    def __init__(self):
        self.u = deque()
        self.o = deque()
        self.n = 0

    def come(self, name, urgent):
        (self.u if urgent else self.o).append(name)
        return len(self.u) + len(self.o)

    def call(self):
        if not self.u and not self.o:
            return None
        if self.o and (not self.u or self.n >= $k):
            self.n = 0
            return self.o.popleft()
        self.n += 1
        return self.u.popleft()
""",
    "round_robin": """
class $f:
    def __init__(self, names):
        self.n = list(names)
        self.t = 0

    def next(self):
        self.t = (self.t + $k) % len(self.n)
        return self.n[self.t]

    def leave(self, name):
        if name in self.n and len(self.n) > 1:
            holder = self.n[self.t]
            i = self.n.index(name)
            nxt = self.n[(i + 1) % len(self.n)]
            self.n.remove(name)
            self.t = self.n.index(nxt if holder == name else holder)
        return len(self.n)
""",
    "limiter": """
class $f:
    def __init__(self):
        self.t = {}
        self.c = {}

    def ask(self, who, time):
        l = self.t.setdefault(who, [])
        ok = sum(1 for x in l if time - x < $span) < $k
        if ok:
            l.append(time)
            self.c[who] = self.c.get(who, 0) + 1
        return ok

    def passed(self, who):
        return self.c.get(who, 0)
""",
    "editor": """
from collections import deque


class $f:
    def __init__(self):
        self.s = ""
        self.h = deque(maxlen=$depth)

    def type(self, s):
        self.h.append(self.s)
        self.s += s
        return self.s

    def erase(self, n):
        self.h.append(self.s)
        self.s = self.s[: max(0, len(self.s) - n)]
        return self.s

    def undo(self):
        if self.h:
            self.s = self.h.pop()
        return self.s
""",
    "recent_keys": """
from collections import OrderedDict


class $f:
    def __init__(self):
        self.d = OrderedDict()

    def put(self, k, v):
        gone = None
        if k not in self.d and len(self.d) >= $k:
            gone = self.d.popitem(last=False)[0]
        self.d[k] = v
        self.d.move_to_end(k)
        return gone

    def get(self, k):
        if k not in self.d:
            return None
        if "reading" in "$counts":
            self.d.move_to_end(k)
        return self.d[k]
""",
    "rising": """
from functools import lru_cache


def $f(a):
    @lru_cache(None)
    def g(i):
        return 1 + max(
            (
                g(j)
                for j in range(i + 1, len(a))
                if $low <= a[j] - a[i] <= $high
            ),
            default=0,
        )

    return max((g(i) for i in range(len(a))), default=0)
""",
    "packing": """
from functools import lru_cache


def $f(things, room):
    @lru_cache(None)
    def g(i, r, k):
        if i == len(things) or k == 0:
            return 0
        s, w = things[i]
        b = g(i + 1, r, k)
        if s <= r:
            b = max(b, w + g(i + 1, r - s, k - 1))
        return b

    return g(0, room, $k)
""",
    "bookings": """
from functools import lru_cache


def $f(bs):
    bs = sorted(map(tuple, bs))

    @lru_cache(None)
    def g(i):
        if i == len(bs):
            return 0
        j = i + 1
        while j < len(bs) and bs[j][0] < bs[i][1] + $rest:
            j += 1
        return max(g(i + 1), bs[i][2] + g(j))

    return g(0)
""",
    "shared_thread": """
from functools import lru_cache
from collections import Counter


def $f(a, b):
    letters = sorted(set(a) & set(b))

    @lru_cache(None)
    def g(i, j, left):
        if i == len(a) or j == len(b):
            return 0
        best = max(g(i + 1, j, left), g(i, j + 1, left))
        if a[i] == b[j]:
            k = letters.index(a[i])
            if left[k]:
                best = max(
                    best, 1 + g(i + 1, j + 1, left[:k] + (left[k] - 1,) + left[k + 1 :])
                )
        return best

    return g(0, 0, ($k,) * len(letters))
""",
    "code_lock": """
from collections import deque


def $f(start, goal, banned):
    seen = {start: 0}
    q = deque([start])
    while q:
        x = q.popleft()
        if x == goal:
            return seen[x]
        for m in (1, -1, $jump, -$jump):
            y = (x + m) % $ring
            if y not in seen and y not in banned:
                seen[y] = seen[x] + 1
                q.append(y)
    return -1
""",
    "lakes": """
def $f(rows):
    cells = {(i, j) for i, r in enumerate(rows) for j, c in enumerate(r) if c == "#"}
    diag = "corner" in "$touch"
    n = 0
    while cells:
        st = [cells.pop()]
        size = 0
        while st:
            i, j = st.pop()
            size += 1
            for a in (-1, 0, 1):
                for b in (-1, 0, 1):
                    if (diag or a == 0 or b == 0) and (i + a, j + b) in cells:
                        cells.remove((i + a, j + b))
                        st.append((i + a, j + b))
        n += size >= $k
    return n
""",
    "cheapest_way": """
def $f(costs):
    prev = costs[0][:]
    for row in costs[1:]:
        prev = [
            c
            + min(
                prev[k] + (0 if k == j else $turns)
                for k in range(len(row))
                if abs(k - j) <= $side
            )
            for j, c in enumerate(row)
        ]
    return min(prev)
""",
    "garden": """
def $f(rows, years):
    for _ in range(years):
        h = len(rows)
        new = []
        for i in range(h):
            w = len(rows[i])
            s = ""
            for j in range(w):
                n = sum(
                    rows[a][b] == "#"
                    for a in range(max(0, i - 1), min(h, i + 2))
                    for b in range(max(0, j - 1), min(w, j + 2))
                    if (a, b) != (i, j)
                )
                s += (
                    "#"
                    if n in ($stay if rows[i][j] == "#" else $born)
                    else "."
                )
            new.append(s)
        rows = new
    return rows
""",
    "order_of_work": """
def $f(jobs):
    left = dict(jobs)
    done = []
    while left:
        can = [j for j, b in left.items() if all(x in done for x in b)]
        if not can:
            return $none
        n = min(can) if "$pick" == "first" else max(can)
        done.append(n)
        del left[n]
    return done
""",
    "page": """
def solve(text):
    ws = text.split()
    if not ws:
        return "-"
    W = $width
    lines = []
    cur = []
    for w in ws:
        if cur and len(" ".join(cur + [w])) > W:
            lines.append(cur)
            cur = []
        cur.append(w)
    out = []
    for l in lines:
        if len(l) == 1:
            out.append(l[0])
            continue
        g = len(l) - 1
        sp = W - sum(map(len, l))
        q, r = divmod(sp, g)
        s = l[0]
        for i, w in enumerate(l[1:]):
            extra = i < r if "$pad" == "left" else i >= g - r
            s += " " * (q + extra) + w
        out.append(s)
    out.append(" ".join(cur))
    return "\\n".join(out)
""",
    "run_lengths": """
import re


def $f(s):
    return re.sub(
        r"(.)\\1*",
        lambda m: (
            m[1] + "$mark" + str(len(m[0])) if len(m[0]) >= $k else m[0]
        ),
        s,
        flags=re.S,
    )
""",
}
