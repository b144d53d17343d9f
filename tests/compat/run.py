#!/usr/bin/env python3
"""Run E2B's own test suites, unmodified, against a server of this project.

    E2B=/path/to/E2B CODE_INTERPRETER=/path/to/code-interpreter make compat

Each variable names a checkout of E2B's repository; the suites of one that is not set are left out.
SUITES limits the run, for example to "python-sync js". The tools and packages that the suites need
are installed below target/compat. The exit status is 1 if a test fails that neither
`e2b-not-applicable` nor `e2b-known-failures` names.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from results import Suite, report
from server import Server

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOLS = pathlib.Path(os.environ.get("COMPAT_TOOLS") or ROOT / "target/compat")
# How many tests run at once: more would only wait for the processors.
PARALLEL = str(min(4, 2 * (os.cpu_count() or 1)))
# What the suites import beside the SDK's own dependencies.
PYTHON_TOOLS = [
    "pytest>=9.0.3,<10",
    "pytest-asyncio>=1.3,<2",
    "pytest-dotenv>=0.5.2,<0.6",
    "pytest-timeout>=2.4,<3",
    "pytest-xdist>=3.6.1,<4",
    "python-dotenv>=1,<2",
]
JS_TOOLS = {
    "@vitest/browser": "^4.1.10",
    "@vitest/browser-playwright": "^4.1.10",
    "dotenv": "^16.4.5",
    "e2b": "^2.39.0",
    "error-stack-parser-es": "^2.0.1",
    "msw": "^2.12.10",
    "openapi-typescript": "^7.9.1",
    "playwright": "^1.55.1",
    "vitest": "^4.1.10",
}
# No suite takes longer, in seconds.
SUITE_S_MAX = 1800


def checkout(variable):
    path = os.environ.get(variable)
    if not path:
        return None
    path = pathlib.Path(path).resolve()
    if not path.is_dir():
        sys.exit(f"{variable}={path} is no directory")
    return path


def installs(home, checkout):
    """Whether what a suite needs must be installed: it is missing, or belongs to another commit."""
    words = ["git", "-C", checkout, "rev-parse", "HEAD"]
    head = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    commit = head.stdout.strip() or str(checkout)
    mark = home / ".installed"
    return commit if not mark.exists() or mark.read_text() != commit else None


def python(sdk, *beside):
    """A virtual environment with the SDK of a checkout, and other packages that it builds on."""
    home = TOOLS / ("python-" + sdk.parent.name)
    pip = home / "bin/pip"
    if commit := installs(home, sdk):
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        quiet = ["install", "-q", "--disable-pip-version-check"]
        subprocess.run([pip, *quiet, sdk, *beside, *PYTHON_TOOLS], check=True)
        (home / ".installed").write_text(commit)
    return home / "bin/python"


def javascript(name, checkout, package):
    """A copy of a checkout below the packages that its suite needs."""
    import json

    home = TOOLS / ("js-" + name)
    copy = home / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    ignored = shutil.ignore_patterns("node_modules", ".git")
    shutil.copytree(checkout, copy, ignore=ignored, symlinks=True)
    suite = copy / package
    if commit := installs(home, checkout):
        own = json.loads((suite / "package.json").read_text())["dependencies"]
        needed = {"private": True, "type": "module", "dependencies": {**JS_TOOLS, **own}}
        (home / "package.json").write_text(json.dumps(needed))
        skipped = dict(os.environ, PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD="1")
        install = ["npm", "install", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(install, cwd=home, env=skipped, check=True)
        (home / ".installed").write_text(commit)
    return suite


def run(command, cwd, env, log):
    """Run a suite. Its failures are read from its report, so its status does not matter."""
    with open(log, "wb") as out:
        both = {"stdout": out, "stderr": subprocess.STDOUT}
        try:
            subprocess.run(command, check=False, cwd=cwd, env=env, timeout=SUITE_S_MAX, **both)
        except subprocess.TimeoutExpired:
            print(f"{log.stem} was ended after {SUITE_S_MAX} s", file=sys.stderr)


def pytest(name, interpreter, cwd, paths, prefix, server, template=None):
    file = TOOLS / f"{name}.xml"
    file.unlink(missing_ok=True)
    command = [interpreter, "-m", "pytest", "-q", "-n", PARALLEL, "-p", "no:cacheprovider"]
    command += ["--timeout", "60", "-o", "junit_family=xunit1", f"--junitxml={file}", *paths]
    env = dict(server.environment(), PYTHONDONTWRITEBYTECODE="1")
    if template:
        env["E2B_TESTS_TEMPLATE"] = template
    run(command, cwd, env, TOOLS / f"{name}.log")
    return Suite.of_junit(name, file, prefix, paths[0])


def answers_itself(test):
    """Whether a test file, or one beside it that it imports, answers the SDK in place of a server."""
    text = test.read_text()
    beside = [test.parent / f"{name}.ts" for name in re.findall(r"from '\./(\w+)'", text)]
    texts = [text, *(path.read_text() for path in beside if path.stem != "setup" and path.exists())]
    return any("from 'msw'" in text for text in texts)


def vitest(name, cwd, projects, prefix, server, template=None):
    env = server.environment()
    if template:
        env["E2B_TESTS_TEMPLATE"] = template
    files = sorted(cwd.glob("tests/**/*.test.ts"))
    # These answer the SDK themselves, at its default address, and reach no server. Few of them build
    # templates as well: each of their tests passes with one of the addresses.
    alone = {path for path in files if answers_itself(path)}
    both = {path for path in alone if "buildTemplateTest" in path.read_text()}
    alone = [str(path.relative_to(cwd)) for path in files if path in alone]
    others = [path for path in files if path in both or not answers_itself(path)]
    others = [str(path.relative_to(cwd)) for path in others]
    default = {word: env[word] for word in env if not word.startswith("E2B_")}
    default["E2B_API_KEY"] = env["E2B_API_KEY"]
    suite = Suite(name, prefix)
    # Named one by one: a project with a list of its own ignores `--exclude`.
    parts = [("", others, env), ("-alone", alone, default)]
    for part, words, env in parts:
        file = TOOLS / f"{name}{part}.json"
        file.unlink(missing_ok=True)
        if part and not words:
            continue
        command = ["npx", "vitest", "run", "--reporter=json", f"--outputFile={file}"]
        command += [f"--maxWorkers={PARALLEL}", *(f"--project={one}" for one in projects), *words]
        run(command, cwd, env, TOOLS / f"{name}{part}.log")
        suite.add_vitest(file, cwd, prefix)
    return suite


def main():
    e2b, interpreter = checkout("E2B"), checkout("CODE_INTERPRETER")
    if not e2b and not interpreter:
        sys.exit("set E2B to a checkout of e2b-dev/E2B, CODE_INTERPRETER to one of e2b-dev/code-interpreter, or both")
    wanted = os.environ.get("SUITES", "").split()
    TOOLS.mkdir(parents=True, exist_ok=True)
    runs = {}
    if e2b:
        sdk = e2b / "packages/python-sdk"
        prefix = "python-sdk/"
        for kind in ("sync", "async"):
            runs[f"python-{kind}"] = lambda name, server, kind=kind: pytest(
                name, python(sdk), sdk, [f"tests/{kind}"], prefix, server
            )
        runs["js"] = lambda name, server: vitest(
            name,
            javascript("sdk", e2b, "packages/js-sdk"),
            ["unit", "template", "connectionConfig"],
            "js-sdk/",
            server,
        )
    if interpreter:
        own = interpreter / "python"
        # Their code uses internals of the SDK of its time, which a later release has not.
        beside = [e2b / "packages/python-sdk"] if e2b else []
        runs["interpreter-python"] = lambda name, server: pytest(
            name,
            python(own, *beside),
            own,
            ["tests"],
            "code-interpreter/python/",
            server,
            server.template,
        )
        runs["interpreter-js"] = lambda name, server: vitest(
            name,
            javascript("interpreter", interpreter, "js"),
            [],
            "code-interpreter/js/",
            server,
            server.template,
        )
    unknown = set(wanted) - set(runs)
    if unknown:
        sys.exit(f"no such suite: {' '.join(sorted(unknown))}; there are {' '.join(runs)}")
    with Server(ROOT, with_template=bool(interpreter)) as server:
        suites = [run(name, server) for name, run in runs.items() if not wanted or name in wanted]
    sys.exit(report(suites, HERE))


if __name__ == "__main__":
    main()
