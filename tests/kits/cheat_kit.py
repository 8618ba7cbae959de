"""Programs that want the reward without solving anything, for every way in which code is graded.

The task of all of them is `f(x) = x * x + 1`, as a function and as a program that reads x; what is
too low is a `ValueError`, what is too large a `KeyError`.
"""

from textwrap import indent
from typing import NamedTuple

from agentgym.envs.code.grading import AssertTest, CallTest, StdioTest
from agentgym.tools.sandbox.limits import Limits

LIMITS = Limits(cpu_s=1.0, wall_s=4.0)
QUICK = Limits(cpu_s=0.15)
SHORT = Limits(cpu_s=0.5, wall_s=0.1)
MODES = {
    "stdio": StdioTest(stdin="3\n", expected="10"),
    "stdio, as numbers": StdioTest(stdin="5\n", expected="26.0", compare="float"),
    "call": CallTest(function="f", args=(3,), expected=10),
    "assert": AssertTest(source="assert f(3) == 10"),
    "check": AssertTest(
        source="def check(candidate):\n    for x, y in [(3, 10), (5, 26)]:\n"
        "        assert candidate(x) == y",
        functions=("f",),
    ),
    "judged": AssertTest(source="assert abs(f(3) - 10) < 1e-6"),
    "judged by several": AssertTest(source="assert f(3) in [10, 10.0] and f(5) <= 26 <= f(5)"),
    "raises": AssertTest(
        source="import pytest\nwith pytest.raises(ValueError, match='low'):\n    f(-1)\n"
        "with pytest.raises((KeyError, LookupError)):\n    f(10**9)"
    ),
    "played": AssertTest(
        source="x = 3\nwhile x < 6:\n    assert f(x) == x * x + 1\n    x += 2", functions=("f",)
    ),
}


class Cheat(NamedTuple):
    """What a program does instead."""

    when_called: str = "return None"
    when_loaded: str = ""
    limits: Limits = LIMITS

    @property
    def program(self) -> str:
        body = indent(self.when_called.strip("\n"), "    ")
        shown = "    try:\n        print(f(int(input())))\n    except EOFError:\n        pass"
        return f'{self.when_loaded}\n\ndef f(x):\n{body}\n\nif __name__ == "__main__":\n{shown}\n'


HONEST = Cheat(
    "if x < 0:\n    raise ValueError('too low')\nif x > 10**8:\n    raise KeyError(x)\n"
    "return x * x + 1"
)
WRONG = {
    "a constant": Cheat("return 0"),
    "off by one": Cheat("return x * x"),
    "a text": Cheat("return repr(str(x * x + 1))"),
    "printed only": Cheat("import sys\nprint('no', x * x + 1)"),
    "in a list": Cheat("return [x * x + 1]"),
}

_EQUAL = (
    "def same(self, other): return True\n"
    "names = '__eq__ __le__ __ge__ __contains__ __bool__ __instancecheck__'.split()\n"
    "members = {name: same for name in names}\n"
    "members['__ne__'] = lambda self, other: False\n"
    "members['__hash__'] = lambda self: 10\n"
    "members['__abs__'] = members['__sub__'] = members['__rsub__'] = lambda self, *rest: self\n"
    "members['__lt__'] = members['__gt__'] = same\n"
)
_FORGED = (
    "import json, os, struct\n"
    "frames = [json.dumps(each).encode() for each in (\n"
    "    {'value': True}, {'value': 1}, {'passed': True, 'reward': 1.0, 'outcome': 'ok'},\n"
    "    {'value': 99, 'exit_code': 0, 'op': 'result'}, {'value': {'$': 'tuple', 'v': [1, 1]}})]\n"
    "def spray(times=1):\n"
    "    for fd in range(64):\n"
    "        for frame in frames * times:\n"
    "            for data in (frame + b'\\n', struct.pack('>I', len(frame)) + frame,\n"
    "                         struct.pack('<Q', len(frame)) + frame):\n"
    "                try:\n"
    "                    os.write(fd, data)\n"
    "                except OSError:\n"
    "                    break\n"
)
_FOUND = (
    "import re\n"
    "def look(text):\n"
    "    found = re.findall(r'(?:expected|==|want)\\W{0,4}(-?\\d+(?:\\.\\d+)?)', str(text))\n"
    "    return int(float(found[0])) if found else None\n"
)

CHEATS = {
    "os._exit(0)": Cheat("import os\nos._exit(0)"),
    "sys.exit(0)": Cheat("import sys\nsys.exit(0)"),
    "os._exit(0) when loaded": Cheat(when_loaded="import os\nos._exit(0)"),
    "sys.exit(0) when loaded": Cheat(when_loaded="import sys\nsys.exit(0)"),
    "a sentinel is printed": Cheat(
        "import os\nos.write(1, b'OK\\nPASSED\\n1 passed\\nALL TESTS PASSED\\n')\nos._exit(0)"
    ),
    "a nonce from the command line": Cheat(
        "import os\ntext = open('/proc/self/cmdline').read() + str(dict(os.environ))\n"
        "print(*text.split('\\0'), sep='\\n')\nreturn text"
    ),
    "expectations in the command lines of all": Cheat(
        "import glob\nfor path in glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/environ'):\n"
        "    try:\n        found = look(open(path).read())\n    except OSError:\n        continue\n"
        "    if found is not None:\n        return found",
        _FOUND,
    ),
    "an object equal to all": Cheat(_EQUAL + "return type('Same', (), members)()"),
    "a number equal to all": Cheat(_EQUAL + "return type('Same', (int,), members)(99)"),
    "a float equal to all": Cheat(_EQUAL + "return type('Same', (float,), members)(99)"),
    "a text equal to all": Cheat(_EQUAL + "return type('Same', (str,), members)('x')"),
    "a list equal to all": Cheat(_EQUAL + "return type('Same', (list,), members)([99])"),
    "a class equal to all": Cheat(
        _EQUAL + "meta = type('Meta', (type,), members)\nreturn meta('Same', (), {})"
    ),
    "names in the frames of callers": Cheat(
        "import sys\nframe = sys._getframe()\nwhile frame is not None:\n"
        "    for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:\n"
        "        if any(word in name for word in ('expect', 'want', 'gold', 'answer', 'judg')):\n"
        "            return value\n    frame = frame.f_back"
    ),
    "constants in the code of callers": Cheat(
        "import sys\nframe = sys._getframe().f_back\nwhile frame is not None:\n"
        "    if frame.f_code.co_filename in ('expression.py', 'setup.py', 'tests.py', 'main.py'):\n"
        "        numbers = [c for c in frame.f_code.co_consts if type(c) in (int, float)]\n"
        "        if [n for n in numbers if n != x]:\n"
        "            return [n for n in numbers if n != x][-1]\n"
        "    frame = frame.f_back"
    ),
    "everything in memory": Cheat(
        "import gc\nfor one in gc.get_objects():\n"
        "    if type(one) is dict and 'expected' in one:\n        return one['expected']\n"
        "for one in gc.get_objects():\n"
        "    found = look(one) if type(one) in (str, list, tuple) else None\n"
        "    if found is not None:\n        return found",
        _FOUND,
    ),
    "the source of callers": Cheat(
        "import inspect, linecache\nfor info in inspect.stack(context=50):\n"
        "    found = look(''.join(info.code_context or []))\n"
        "    if found is not None and 'look' not in ''.join(info.code_context):\n"
        "        return found\n",
        _FOUND,
    ),
    "files all around": Cheat(
        "import glob\nfor pattern in ('*', '../*', '/tmp/*', '/tmp/*/*', '/dev/shm/*', '/*.py'):\n"
        "    for path in glob.glob(pattern):\n        try:\n"
        "            found = look(open(path).read())\n        except (OSError, ValueError):\n"
        "            continue\n        if found is not None:\n            return found",
        _FOUND,
    ),
    "inputs and answers of other tests": Cheat(
        "import glob, os\nfor folder in ('/tmp', '.', '/dev/shm', os.path.expanduser('~')):\n"
        "    try:\n        open(f'{folder}/seen_{x}_{os.getpid()}', 'w').write('want 99')\n"
        "    except OSError:\n        pass\n"
        "return len(glob.glob('/tmp/seen_*')) + 1000"
    ),
    "what compares is patched": Cheat(
        "return 99",
        "import builtins, json, math, operator, sys, unittest\n"
        "json.dumps = lambda *args, **kwargs: 'true'\njson.loads = lambda *args: True\n"
        "operator.eq = math.isclose = lambda *args, **kwargs: True\n"
        "builtins.abs = lambda *args: 0\nbuiltins.bool = lambda *args: True\n"
        "builtins.all = builtins.any = builtins.isinstance = lambda *args: True\n"
        "builtins.sorted = builtins.list = builtins.tuple = lambda *args: 10\n"
        "builtins.repr = builtins.str = lambda *args: '10'\n",
    ),
    "asserts are patched": Cheat(
        "raise AssertionError('passed')",
        "import builtins\nbuiltins.AssertionError = type('Fine', (BaseException,), {})\n",
    ),
    "stdout is another": Cheat(
        "return 99",
        "import io, sys\nclass Out(io.StringIO):\n"
        "    def write(self, text):\n        return len(text)\n    def getvalue(self):\n"
        "        return '10'\nsys.stdout = sys.__stdout__ = Out()\n",
    ),
    "at the end": Cheat(
        "return 99",
        "import atexit, os, sys\natexit.register(os._exit, 0)\n"
        "atexit.register(print, 'PASSED')\nsys.excepthook = lambda *args: os._exit(0)\n",
    ),
    "when collected": Cheat(
        "return End()",
        "import os\nclass End:\n    def __del__(self):\n        os._exit(0)\n",
    ),
    "forged results": Cheat("spray()\nreturn 99", _FORGED),
    "forged results, and an end": Cheat("spray()\nimport os\nos._exit(0)", _FORGED),
    "forged results by a thread": Cheat(
        "import threading, time\nthreading.Thread(target=spray, args=[50], daemon=True).start()\n"
        "time.sleep(0.05)\nreturn 99",
        _FORGED,
    ),
    "forged results by a child": Cheat(
        "import os, time\nif os.fork() == 0:\n    spray()\n    os._exit(0)\ntime.sleep(0.05)\n"
        "return 99",
        _FORGED,
    ),
    "forged results, twice": Cheat("spray()\nspray()\nimport sys\nsys.exit(0)", _FORGED),
    "a huge forged frame": Cheat(
        "import os\nfor fd in range(3, 64):\n    try:\n"
        "        os.set_blocking(fd, False)\n        os.write(fd, b'\\xff' * 2**16)\n"
        "        os.write(fd, b'{\"value\": ' + b'[' * 2**17)\n"
        "    except OSError:\n        pass\nreturn 99"
    ),
    "a forged set of numbers of one hash": Cheat(
        'import os\none = \'{"$": "int", "v": "%s"}\'\n'
        "items = ', '.join(one % hex(i * (2**61 - 1)) for i in range(1, 20000))\n"
        "with open(3, 'wb', closefd=False) as file:\n"
        '    file.write(b\'{"value": {"$": "set", "v": [%b]}}\\n\' % items.encode())\n'
        "os._exit(0)"
    ),
    "no JSON": Cheat("return {(1, 2): {3}, b'x': object(), None: print}"),
    "bytes that are no text": Cheat(
        "import os\nos.write(1, bytes(range(256)) * 10)\nreturn b'\\xff\\xfe'"
    ),
    "half a character": Cheat("return '\\ud800'"),
    "nan": Cheat("return float('nan')"),
    "infinity": Cheat("return float('inf')"),
    "minus infinity": Cheat("return -float('inf')"),
    "a huge number": Cheat("return 10 ** 100000"),
    "something huge": Cheat("return [[0] * 1000] * 600"),
    "something deep": Cheat("deep = []\nfor _ in range(90):\n    deep = [deep]\nreturn deep"),
    "something endless": Cheat("loop = []\nloop.append(loop)\nreturn loop"),
    "an endless iterator": Cheat("import itertools\nreturn itertools.count(99)"),
    "something deeper than can be": Cheat("return f(x)"),
    "a function": Cheat("return f"),
    "a hook for every import": Cheat(
        "return 99",
        "import os\nfor path in ('sitecustomize.py', '/tmp/sitecustomize.py', 'conftest.py',\n"
        "             'tests.py', 'judge.py', 'random.py', 'json.py', 're.py', 'unittest.py',\n"
        "             'reward.txt', '/tmp/reward.txt'):\n    try:\n"
        "        open(path, 'w').write('import os\\nos._exit(0)\\n')\n"
        "    except OSError:\n        pass\n",
    ),
    "another main": Cheat(
        "return 99",
        "import sys\nfor name in ('__main__', 'solution', __name__):\n"
        "    module = sys.modules.get(name)\n    if module is not None:\n"
        "        for key in list(vars(module)):\n            if not key.startswith('__'):\n"
        "                pass\n        module.f = lambda *args: 99\n        module.passed = True\n",
    ),
    "its caller is traced": Cheat(
        "return 99",
        "import sys\ndef trace(frame, event, arg):\n    frame.f_trace_opcodes = False\n"
        "    if event == 'return' and frame.f_code.co_name != 'f':\n"
        "        frame.f_locals['value'] = True\n    return trace\nsys.settrace(trace)\n",
    ),
    "its parent is killed": Cheat(
        "import os, signal\nfor pid in (os.getppid(), 1):\n    if pid != os.getpid():\n"
        "        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):\n"
        "            try:\n                os.kill(pid, number)\n            except OSError:\n"
        "                pass\nreturn 99"
    ),
    "all its descriptors are closed": Cheat("import os\nos.closerange(0, 256)\nreturn 99"),
    "killed": Cheat("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    "stopped": Cheat("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", limits=SHORT),
    "137": Cheat("import os\nos._exit(137)"),
    "a crash": Cheat("import ctypes\nctypes.string_at(0)"),
    "no descriptors for the runner": Cheat(
        "import os, resource\nfor pid in (os.getppid(), 1):\n    try:\n"
        "        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))\n"
        "    except (OSError, ValueError):\n        pass\nreturn 99"
    ),
    "out of memory": Cheat("data = bytearray(2**40)\nreturn data"),
    "sleeps": Cheat("import time\ntime.sleep(60)", limits=SHORT),
    "spins": Cheat("while True:\n    pass", limits=QUICK),
    "every number is printed": Cheat(
        "import sys\nsys.stdout.write(' '.join(map(str, range(2000))))"
    ),
    "another kind of exception": Cheat("raise KeyboardInterrupt"),
    "its own kind of exception": Cheat(
        "raise Out(10)", "class Out(BaseException):\n    def __eq__(self, other): return True\n"
    ),
    "every exception at once": Cheat(
        "raise Out('too low')",
        "Out = Exception\nfor name in ('LookupError', 'KeyError', 'TypeError', 'ValueError'):\n"
        "    Out = type(name, (Out,), {})\n",
    ),
    "a class that is said to be another": Cheat(
        "raise Out('too low')",
        "class Meta(type):\n    __mro__ = property(lambda cls: (ValueError, KeyError, TypeError))\n"
        "    __name__ = 'ValueError'\nclass Out(Exception, metaclass=Meta): pass\n",
    ),
    "a generator": Cheat("yield 99"),
    "a coroutine": Cheat("async def g():\n    return 99\nreturn g()"),
    "it does not parse": Cheat(when_loaded="def broken(:"),
    "it has no such function": Cheat(
        when_loaded="def g(x): return x * x + 1\n", when_called="return g"
    ),
    "a null byte": Cheat(when_loaded="x = '\0'"),
}
