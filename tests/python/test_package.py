"""The package itself: types, documents, what the module is linked to."""

import ast
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import strata
from strata import _core

FOLDER = os.path.dirname(strata.__file__)


def declared():
    """Names of the stub, with the public members of its classes."""
    with open(os.path.join(FOLDER, "_core.pyi"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not any(ast.unparse(base) == "TypedDict" for base in node.bases):
            names[node.name] = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = set()
    return {name: members for name, members in names.items() if not name.startswith("_")}


def test_the_stub_tells_what_the_module_has():
    here = {name for name in vars(_core) if not name.startswith("_")} - {"library_name"}
    assert here == set(declared())
    for name, members in declared().items():
        if inspect.isclass(getattr(_core, name)):
            own = {member for member in vars(getattr(_core, name)) if not member.startswith("_")}
            assert own - {member for member in members if not member.startswith("_")} == set()
            assert {member for member in members if not member.startswith("_")} - own == set()


def test_everything_public_is_documented():
    for name in strata.__all__:
        thing = getattr(strata, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            for member, value in vars(thing).items():
                assert member.startswith("_") or value.__doc__, f"{name}.{member}"
    assert os.path.isfile(os.path.join(FOLDER, "py.typed"))


def test_libraries_adapters_are_imported_when_they_are_used(process):
    status, output, errors = process(
        """
        import sys, strata
        assert {"cupy", "numba", "cuda_core", "torch", "allocate"} <= set(dir(strata))
        assert not [name for name in sys.modules if name.startswith(("strata.", "cupy", "numba", "torch")) and name != "strata._core"]
        print(strata.torch.use.__name__, strata.torch is sys.modules["strata.torch"])
        sys.modules["cupy"] = None
        for name in ("cupy", "nothing"):
            try:
                getattr(strata, name)
            except AttributeError as error:
                print(error)
        """
    )
    assert (status, errors) == (0, "")
    first, cupy, nothing = output.splitlines()
    assert first == "use True" and nothing == "module 'strata' has no attribute 'nothing'"
    assert cupy.startswith("strata.cupy cannot be imported: ") and "cupy" in cupy


def test_the_version_is_the_librarys():
    assert strata.__version__ == _core.version()
    assert os.path.isfile(strata.get_library())


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf here")
def test_the_module_is_linked_to_strata_alone():
    text = subprocess.run(["readelf", "-d", _core.__file__], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    assert _core.library_name in needed
    assert not {name for name in needed if not re.match(r"libstrata|libc\.|ld-linux|libm\.|libasan|libubsan|libgcc_s", name)}


def test_the_module_is_of_the_stable_abi():
    assert _core.__file__.endswith(".abi3.so")


EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(not (EXAMPLES / "python_budget.py").is_file(), reason="the examples are not here")
def test_the_example_runs():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "python_budget.py")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "greedy: peak 8388608 of 16777216 bytes, 1 refused" in done.stdout


def test_types_are_checked_by_mypy(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import strata\n"
        "with strata.tag('x') as tag, strata.budget('1GiB') as budget:\n"
        "    buffer: strata.Buffer = strata.allocate(100)\n"
        "    peak: int = budget.peak\n"
        "    name: str = tag.name\n"
        "    buffer.view('f4', [5, 5])\n"
        "    wrong: str = buffer.nbytes\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": os.path.dirname(FOLDER)},
        check=False,
    )
    assert done.stdout.count("error:") == 1 and "program.py:7" in done.stdout, done.stdout


@pytest.mark.parametrize("words", ["g++", "g++ -static-libstdc++ -static-libgcc"])
def test_a_shim_has_the_cxx_library_of_the_process(words, monkeypatch, tmp_path):
    """Where the compiler would put its own into the shim, two of them would format each other's numbers."""
    if not shutil.which("g++") or not shutil.which("readelf"):
        pytest.skip("no g++ or no readelf")
    from strata._torch import compiler

    monkeypatch.setenv("CXX", words)
    source, made, out = tmp_path / "one.cc", str(tmp_path / "one.o"), str(tmp_path / "one.so")
    source.write_text(
        "#include <sstream>\n#include <string>\n"
        'extern "C" int length(double of) { std::ostringstream text; text << of; return (int)text.str().size(); }\n'
    )
    compiler.run([*compiler.compiler(), *compiler.FLAGS, "-c", str(source), "-o", made])
    compiler.link([made], out, str(tmp_path))
    needed = subprocess.run(["readelf", "-d", out], capture_output=True, text=True, check=True).stdout
    assert "[libstdc++.so.6]" in needed and "[libgcc_s.so.1]" in needed
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", out], capture_output=True, text=True, check=True).stdout
    assert "_ZSt9use_facet" not in "".join(line for line in symbols.splitlines() if " UND " not in line)
    assert "do_length" not in symbols
