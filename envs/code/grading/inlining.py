"""A call of a function that the tests define, as the statements it comes down to."""

import ast
import copy

from agentgym.envs.code.grading.names import NotRewritable


def bound_call(function: ast.FunctionDef, call: ast.Call) -> list[ast.stmt]:
    """Its body with the arguments in place of the parameters.

    Raises:
        NotRewritable: the call or the function has a form that is not followed.
    """
    values = _bound(function, call)
    renamed = {name: value.id for name, value in values.items() if isinstance(value, ast.Name)}
    first: list[ast.stmt] = [
        ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value, lineno=0)
        for name, value in values.items()
        if name not in renamed
    ]
    body = [_Renamer(renamed).visit(copy.deepcopy(statement)) for statement in function.body]
    if body and isinstance(body[-1], ast.Return):
        body.pop()
    if any(isinstance(node, ast.Return | ast.Yield) for s in body for node in ast.walk(s)):
        raise NotRewritable(f"{function.name} returns in its middle")
    return [*first, *body]


def _bound(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    spec = function.args
    if spec.vararg or spec.kwarg or any(isinstance(arg, ast.Starred) for arg in call.args):
        raise NotRewritable(f"{function.name} takes any number of arguments")
    names = [arg.arg for arg in [*spec.posonlyargs, *spec.args]]
    values: dict[str, ast.expr] = dict(
        zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)
    )
    for only, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        names.append(only.arg)
        if default is not None:
            values[only.arg] = default
    values.update(zip(names, call.args, strict=False))
    values.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    if set(values) != set(names):
        raise NotRewritable(f"{function.name} is called with other arguments than it takes")
    return values


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.names:
            return node
        if isinstance(node.ctx, ast.Store | ast.Del):
            raise NotRewritable(f"the parameter {node.id} is bound anew")
        return ast.Name(id=self.names[node.id], ctx=node.ctx)
