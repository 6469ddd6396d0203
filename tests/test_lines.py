"""Nothing in the engine's room is copied: a generation of the model is what differs, and the rest
is shared.
"""

from __future__ import annotations

import textwrap
from functools import cache

from scripts import count_lines


@cache
def engine_lines():
    return {name: count_lines.code_lines(path) for name, path in count_lines.modules().items()}


def test_no_block_of_the_engine_occurs_twice():
    copies = count_lines.copies(engine_lines().values())
    assert not copies, "\n".join(copy.words() for copy in copies)


def test_every_generation_uses_more_of_the_others_than_it_brings():
    table = count_lines.shares(
        count_lines.modules(), {name: len(lines) for name, lines in engine_lines().items()}
    )
    assert "cosyvoice2" in table
    for engine, row in table.items():
        assert row["all"] + row["some"] > row["own"] and row["all"], engine


def lines_of(tmp_path, name, source):
    (tmp_path / name).write_text(textwrap.dedent(source))
    return count_lines.code_lines(tmp_path / name, tmp_path)


def test_a_copy_is_found_whatever_stands_around_it_and_comments_do_not_hide_it(tmp_path):
    block = "\n".join(f"x{i} = {i} + y" for i in range(11))
    first = lines_of(tmp_path, "one.py", f'"""Head."""\nimport os\n\na = 1\n{block}\nb = 2\n')
    second = lines_of(
        tmp_path,
        "two.py",
        'def f(y):\n    """Doc."""\n'
        + textwrap.indent(block.replace("\n", "  # why\n\n# so\n"), "    ")
        + "\n    return x1\n",
    )
    [copy] = count_lines.copies([first, second])
    assert (copy.lines, copy.first.file, copy.first.number, copy.second.number) == (
        11,
        "one.py",
        5,
        3,
    )
    assert not count_lines.copies([first[:-2], second]), "ten lines are no copy"
    [twice] = count_lines.copies([first + lines_of(tmp_path, "more.py", block)])
    assert twice.lines == 11, "in one file too"


def test_a_copy_with_other_names_is_told_as_alike(tmp_path):
    first = lines_of(tmp_path, "one.py", "\n".join(f"a{i} = b{i} * {i}" for i in range(12)))
    second = lines_of(
        tmp_path, "two.py", "\n".join(f"c{i} = long_name * {i + 9}" for i in range(12))
    )
    assert not count_lines.copies([first, second])
    assert count_lines.copies(map(count_lines.blurred, (first, second)))


def test_shared_is_what_two_reach(tmp_path):
    room = tmp_path / "webui" / "engine"
    for name, source in {
        "cosyvoice/engine.py": "from .both import x\n",
        "cosyvoice/both.py": "x = 1\n",
        "cosyvoice/v2.py": "from . import only2\nfrom .two import z\n",
        "cosyvoice/only2.py": "y = 1\ny = 2\n",
        "cosyvoice/two.py": "z = 1\n",
        "cosyvoice/v3.py": "def f():\n    from .two import z\n    return z\n",
        "cosyvoice/v1.py": "a = 1\n",
    }.items():
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_text(source)
    modules_by_name = count_lines.modules(tmp_path)
    table = count_lines.shares(
        modules_by_name,
        {
            name: len(count_lines.code_lines(path, tmp_path))
            for name, path in modules_by_name.items()
        },
    )
    assert table == {
        "cosyvoice1": {"all": 1, "some": 0, "own": 1},
        "cosyvoice2": {"all": 1, "some": 1, "own": 2},
        "cosyvoice3": {"all": 1, "some": 1, "own": 2},
    }
