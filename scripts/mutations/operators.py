"""Bugs made by cosmic-ray's operators: a seeded sample of all that it would plant in the privacy-critical files."""

import ast
import difflib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutations.mutant import SOURCE, Mutant

#: What a sample is drawn from: files that decide what leaves, how noisy, and at what price.
FILES = (
    "core/accounting.py", "core/audit.py", "core/clipped_sums.py", "core/clipping.py", "core/cohort.py",
    "core/door.py", "core/grouping.py", "core/lattice.py", "core/opening.py", "core/sampled.py",
    "core/second_opinion.py", "core/site.py", "core/softmax_gradient.py",
    "core/feature_moments.py", "core/gaussian.py", "core/mechanisms.py", "core/phase.py", "core/plan.py",
    "core/pooled.py", "core/programs.py", "core/queries.py", "core/records.py", "core/release.py", "core/round.py",
    "core/record_sums.py", "core/walk.py", "deploy/account.py", "deploy/certificate.py",
    "deploy/certificate_arithmetic.py", "deploy/exact_sums.py",
    "deploy/execute.py",
    "deploy/holding.py", "deploy/lines.py", "deploy/node.py", "deploy/noise.py", "deploy/policy.py",
    "deploy/pricing.py", "deploy/secure_sum.py", "deploy/uploads.py", "deploy/wire.py",
)  # fmt: skip

_BINARY = ("Add_Sub", "Sub_Add", "Mul_Div", "Mul_Add", "Div_Mul", "Div_FloorDiv", "FloorDiv_Div", "FloorDiv_Mul",
           "Mod_Div", "Pow_Mul", "RShift_LShift", "LShift_RShift", "BitOr_BitAnd", "BitAnd_BitOr")  # fmt: skip
_COMPARED = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
_OTHER = (
    "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_Invert",
    "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop",
    "ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is",
)  # fmt: skip
#: Operators a person could mistake for each other. Left out: those whose result is a type error wherever it stands.
OPERATORS = (
    *(f"core/ReplaceBinaryOperator_{name}" for name in _BINARY),
    *(f"core/ReplaceComparisonOperator_{a}_{b}" for a in _COMPARED for b in _COMPARED if a != b),
    *(f"core/{name}" for name in _OTHER),
)


def sampled(tree: Path, each: int, seed: int) -> list[Mutant]:
    """Up to `each` mutants of every file, the same for the same file and seed."""
    out: list[Mutant] = []
    for file in FILES:
        path = tree / SOURCE / file
        if not path.is_file():
            raise SystemExit(f"{file} does not exist; mend FILES in scripts/mutations/operators.py")
        text = path.read_text(encoding="utf-8")
        order = list(_occurrences(text))
        random.Random(f"{seed} {file}").shuffle(order)
        made = (_mutant(file, text, name, i) for name, i in order)
        out += [m for m, _ in zip((m for m in made if m is not None), range(each), strict=False)]
    return out


def _occurrences(text: str) -> Iterator[tuple[str, int]]:
    """Every operator with the number of every place that it fits."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast(text)))
    for name in OPERATORS:
        operator: Any = get_operator(name)()
        count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
        yield from ((name, i) for i in range(count))


def _mutant(file: str, text: str, name: str, occurrence: int) -> Mutant | None:
    """None where the change is none of the program's: in annotations, or in words for people."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    changed = mutate_code(text, get_operator(name)(), occurrence)
    try:
        if changed is None or _essence(changed) == _essence(text):
            return None
    except SyntaxError:
        return None
    before, after = _changed_lines(text, changed)
    title = f"{file} {name.removeprefix('core/')} {occurrence}"
    return Mutant(name=title, group=file, source="operators", file=file, before=before, after=after, text=changed)


def _changed_lines(old: str, new: str) -> tuple[str, str]:
    lines = [d for d in difflib.ndiff(old.splitlines(), new.splitlines()) if d[:2] in ("- ", "+ ")]
    return (" ".join(d[2:].strip() for d in lines if d.startswith(sign)) for sign in "-+")  # type: ignore[return-value]


class _Essence(ast.NodeTransformer):
    """A program without what no test should hold it to: annotations, texts of errors, sizes of caches, style."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [d for d in node.decorator_list if "cache" not in ast.dump(d)]
        given = node.args  # which are given by name and which by place is a matter of style
        given.args, given.posonlyargs, given.kwonlyargs = given.posonlyargs + given.args + given.kwonlyargs, [], []
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = []
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Name("Any", ast.Load())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = []
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = []
        return node


def _essence(text: str) -> str:
    return ast.dump(_Essence().visit(ast.parse(text)))
