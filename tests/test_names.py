"""A name says what it is: no pronoun, participle or filler word stands alone as the name of a
function, an argument, a variable or an attribute (`expected`, not `wanted`; `response`, not `got`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("webui", "scripts", "tests")
WORDS = frozenset(
    # pronouns and words that stand for another one
    "it they them one ones this that these those who whom what where when here there another each"
    " both some none mine ours yours theirs thing things stuff"
    # participles: what was done to it says nothing of what it is
    " told made asked heard want wanted kept drawn said seen given taken found got gone came went"
    " met spoken held written brought felt known thought meant paid begun grown thrown"
    " asking telling making taking giving saying hearing wanting going coming being having".split()
)
# what binds a name, and the field that holds it
BINDINGS = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.alias: "asname",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
}
EXCEPTIONS = {
    ("webui/studio/consents.py", "who"): "a field of the page's JSON",
    ("webui/client/batch.py", "kept"): "of the client's Progress, which programs of others read",
}


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of everything that `tree` binds."""
    for node in ast.walk(tree):
        field = BINDINGS.get(type(node))
        name = getattr(node, field) if field else None
        if name and isinstance(getattr(node, "ctx", ast.Store()), ast.Store):
            yield name, node.lineno


def vague(path: Path, root: Path = ROOT) -> set[str]:
    file = path.relative_to(root).as_posix()
    return {
        f"{file}:{line} {name}"
        for name, line in names(ast.parse(path.read_text("utf-8")))
        if name.strip("_") in WORDS and (file, name) not in EXCEPTIONS
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_says_what_it_is(room):
    found_names = [line for path in sorted((ROOT / room).rglob("*.py")) for line in vague(path)]
    assert not found_names, "\n".join(["see the rule on names in CONTRIBUTING.md:", *found_names])


def test_every_binding_is_looked_at(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(
        "import io as told\n"
        "def _made(asked, *, given=1, **what): pass\n"
        "async def heard(): pass\n"
        "class Seen: held: int = 0\n"
        "x.kept, y = 1, [z for one in y]\n"
        "try: pass\n"
        "except OSError as got: pass\n"
        "match y:\n"
        "    case [*some]: (lambda theirs: wanted)\n",
        "utf-8",
    )
    assert {line.split()[-1] for line in vague(path, tmp_path)} == {
        *("told", "_made", "asked", "given", "what", "heard", "held", "kept", "one", "got"),
        *("some", "theirs"),
    }


def test_every_exception_is_needed():
    for file, name in EXCEPTIONS:
        assert name in {n for n, _ in names(ast.parse((ROOT / file).read_text("utf-8")))}, file
