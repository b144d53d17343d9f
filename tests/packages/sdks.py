"""Runs the tests of both SDKs against the artifacts that are published, not against the sources."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from artifacts import WORK, one
from report import proven
from report import run as run_command

#: Time limit of a test suite, in seconds.
SUITE_S_MAX = 1200
#: A test of the sources, which a package does not contain.
ABOUT_SOURCES = "tests/test_core.py::test_the_sync_client_is_generated_from_the_async_one"


def run_suite(command: list[str], directory: Path, environment: dict[str, str]) -> None:
    """Run a test suite, with its output."""
    subprocess.run(command, cwd=directory, env=environment, timeout=SUITE_S_MAX, check=True)


def link_clients(checkout: Path) -> None:
    """The tests of nodes start etcd, which they expect below the checkout around the package."""
    (checkout / "target").mkdir()
    (checkout / "target/clients").symlink_to(Path("target/clients").absolute())


def python(environment: dict[str, str]) -> None:
    """Install the wheel into a new environment, and run copies of the tests there."""
    root = Path("sdk/python")
    work = WORK / "sdk-python/sdk/python"
    shutil.rmtree(WORK / "sdk-python", ignore_errors=True)
    work.mkdir(parents=True)
    for name in ("tests", "examples", "README.md", "pyproject.toml"):
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, work / name)
    # What the tests expect of the checkout around the package.
    shutil.copytree("examples/agent-loop", WORK / "sdk-python/examples/agent-loop")
    link_clients(WORK / "sdk-python")
    venv = WORK / "sdk-python/venv"
    run_command([sys.executable, "-m", "venv", str(venv)])
    wheel = one("sdk/isolet-*.whl")
    run_command([str(venv / "bin/pip"), "install", "-q", "--disable-pip-version-check", f"{wheel}[test]"])
    where = run_command([str(venv / "bin/python"), "-c", "import isolet; print(isolet.__file__)"], cwd=work).strip()
    assert str(venv) in where, where
    suite = [str(venv / "bin/pytest"), "-q", "-o", "faulthandler_timeout=120", "--deselect", ABOUT_SOURCES]
    run_suite(suite, work, environment)
    proven(f"the tests of the Python SDK pass with {wheel.name}")


def typescript(environment: dict[str, str]) -> None:
    """Install the package into a new project, and run copies of the tests whose imports name it."""
    root = Path("sdk/typescript")
    work = WORK / "sdk-typescript/sdk/typescript"
    shutil.rmtree(WORK / "sdk-typescript", ignore_errors=True)
    work.mkdir(parents=True)
    link_clients(WORK / "sdk-typescript")
    shutil.copytree(root / "test", work / "test")
    shutil.copytree(root / "examples", work / "examples")
    shutil.copy(root / "vitest.config.ts", work)
    # Tests of the sources and of the build have nothing to do here.
    for name in ("package.test.ts",):
        (work / "test" / name).unlink()
    for test in (work / "test").glob("*.ts"):
        test.write_text(
            test.read_text()
            .replace('"../src/index.js"', '"@isolet/sdk"')
            .replace('"../src/node.js"', '"@isolet/sdk"')
            .replace('"../src/xterm.js"', '"@isolet/sdk/xterm"')
        )
    internal = [test.name for test in (work / "test").glob("*.test.ts") if '"../src/' in test.read_text()]
    for name in internal:
        (work / "test" / name).unlink()
    print(f"  left out, because they import parts that are not exported: {', '.join(internal) or 'none'}")
    archive = one("sdk/isolet-sdk-*.tgz")
    development = json.loads((root / "package.json").read_text())["devDependencies"]
    project = {
        "name": "isolet-sdk-test",
        "private": True,
        "type": "module",
        "dependencies": {"@isolet/sdk": f"file:{archive}"},
    }
    project["devDependencies"] = development
    (work / "package.json").write_text(json.dumps(project))
    run_command(["npm", "install", "--no-save", "--no-package-lock", "--loglevel=error"], cwd=work)
    run_suite(["npx", "vitest", "run"], work, environment)
    proven(f"the tests of the TypeScript SDK pass with {archive.name}")


def run() -> None:
    """Test both, with the programs in ISOLET_PROGRAMS or target/programs."""
    programs = os.environ.get("ISOLET_PROGRAMS", str(Path("target/programs").absolute()))
    environment = {**os.environ, "ISOLET_PROGRAMS": programs}
    python(environment)
    typescript(environment)
