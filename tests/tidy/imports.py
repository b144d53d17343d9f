#!/usr/bin/env python3
"""Import cycles and folder sizes of the Rust crates, computed from their `use` lines and paths.

Each file is a node. An edge leads from a file to the file that defines what it names; a re-export
is followed to its definition. Test modules are left out. A cycle may not be larger than one module
with its own children, and a folder may not hold more than SIBLINGS_MAX Rust files.

    imports.py [--report | --edges MODULE_PREFIX] [CRATE_DIR ...]
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

SIBLINGS_MAX = 20

Module = tuple[str, ...]

STRIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(#+)".*?"\1|r"[^"]*"|b?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""",
    re.S,
)
USE = re.compile(r"(?<![\w:#])(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
PATH = re.compile(r"(?<![\w:$])((?:[A-Za-z_]\w*\s*::\s*)+)([A-Za-z_]\w*|\{)")
TEST_MODULE = re.compile(r"#\[cfg\((?:all\()?(?:test|fuzzing)\b[^\]]*\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*(;|\{)")
INLINE = re.compile(r"(?<![\w:])mod\s+(\w+)\s*\{")


def block_end(text: str, opening: int) -> int:
    """The index after the brace that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)


def without_tests(text: str) -> tuple[str, set[str]]:
    """The text without test modules, and the names of those that are files."""
    names: set[str] = set()
    while found := TEST_MODULE.search(text):
        end = found.end()
        if found[2] == ";":
            names.add(found[1])
        else:
            end = block_end(text, found.end() - 1)
        text = text[: found.start()] + text[end:]
    return text, names


def use_paths(tree: str, prefix: Module = ()) -> list[tuple[Module, str]]:
    """Each path that a `use` tree names, with the name that it binds ("*" for a glob)."""
    tree = tree.strip()
    if "{" in tree and not tree.endswith("}"):
        raise ValueError(f"cannot read the use tree {tree!r}")
    if tree.endswith("}"):
        head, _, inner = tree.partition("{")
        prefix += tuple(part.strip() for part in head.split("::") if part.strip())
        parts: list[str] = []
        depth = 0
        start = 0
        inner = inner[:-1]
        for index, letter in enumerate(inner):
            depth += (letter == "{") - (letter == "}")
            if letter == "," and depth == 0:
                parts.append(inner[start:index])
                start = index + 1
        parts.append(inner[start:])
        return [found for part in parts if part.strip() for found in use_paths(part, prefix)]
    path, _, alias = (part.strip() for part in re.sub(r"\s+as\s+", " as ", tree).partition(" as "))
    whole = prefix + tuple(part.strip() for part in path.split("::"))
    if whole[-1] == "self":
        whole = whole[:-1]
    return [(whole, alias or whole[-1])]


class Crate:
    """The modules of one crate, and what they import from one another."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.source = directory / "src"
        self.files: dict[Module, Path] = {}
        self.texts: dict[Module, str] = {}
        self.bound: dict[Module, dict[str, Module]] = {}
        self._read()
        self.edges: dict[Module, set[Module]] = {
            module: self._targets(module) for module in self.files
        }

    def _read(self) -> None:
        tests: set[Module] = set()
        for file in sorted(self.source.rglob("*.rs")):
            parts = file.relative_to(self.source).with_suffix("").parts
            if parts[0] == "bin":
                continue
            module: Module = parts[:-1] if parts[-1] in ("mod", "lib") else parts
            if parts == ("main",) and not (self.source / "lib.rs").exists():
                module = ()
            text, names = without_tests(STRIPPED.sub(" ", file.read_text()))
            tests.update(module + (name,) for name in names)
            self.files[module] = file
            self.texts[module] = text
        for module in list(self.files):
            if any(module[: len(test)] == test for test in tests):
                del self.files[module], self.texts[module]
        for module, text in self.texts.items():
            names: dict[str, Module] = {}
            for found in USE.finditer(text):
                for path, name in use_paths(found[2]):
                    names.setdefault(name, path)
            self.bound[module] = names

    def _absolute(self, module: Module, path: Module) -> Module | None:
        """The path from the crate's root, or nothing when it leads to another crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return module + path[1:]
        if path[0] == "super":
            base = module
            while path and path[0] == "super":
                base, path = base[:-1], path[1:]
            return base + path
        if module + path[:1] in self.files:
            return module + path
        return None

    def _definition(self, path: Module, seen: frozenset[Module] = frozenset()) -> Module | None:
        """The module that defines what an absolute path names."""
        module: Module = ()
        rest = path
        while rest and module + rest[:1] in self.files:
            module, rest = module + rest[:1], rest[1:]
        if not rest:
            return module
        target = self.bound.get(module, {}).get(rest[0])
        if target is None or path in seen:
            return module
        absolute = self._absolute(module, target)
        if absolute is None:
            return None if target[0] not in ("crate", "self", "super") else module
        return self._definition(absolute + rest[1:], seen | {path})

    def _targets(self, module: Module) -> set[Module]:
        text = self.texts[module]
        found: set[Module | None] = set()
        for use in USE.finditer(text):
            for path, name in use_paths(use[2]):
                absolute = self._absolute(module, path)
                if absolute is not None:
                    found.add(self._definition(absolute[:-1] if name == "*" else absolute))
        body = USE.sub(" ", text)
        for path_found in PATH.finditer(body):
            path = tuple(part.strip() for part in path_found[1].split("::")[:-1])
            if path_found[2] != "{":
                path += (path_found[2],)
            bound = self.bound[module].get(path[0])
            if bound is not None:
                path = bound + path[1:]
            absolute = self._absolute(module, path)
            if absolute is not None:
                found.add(self._definition(absolute))
        return {target for target in found if target is not None and target != module}

    def cycles(self) -> list[list[Module]]:
        """The strongly connected components of more than one file, by Tarjan's algorithm."""
        index: dict[Module, int] = {}
        low: dict[Module, int] = {}
        stack: list[Module] = []
        on_stack: set[Module] = set()
        components: list[list[Module]] = []

        def visit(node: Module) -> None:
            index[node] = low[node] = len(index)
            stack.append(node)
            on_stack.add(node)
            for target in sorted(self.edges[node]):
                if target not in index:
                    visit(target)
                    low[node] = min(low[node], low[target])
                elif target in on_stack:
                    low[node] = min(low[node], index[target])
            if low[node] == index[node]:
                component: list[Module] = []
                while True:
                    member = stack.pop()
                    on_stack.discard(member)
                    component.append(member)
                    if member == node:
                        break
                if len(component) > 1:
                    components.append(sorted(component))

        for node in sorted(self.files):
            if node not in index:
                visit(node)
        return sorted(components, key=len, reverse=True)

    def folders(self) -> dict[Path, int]:
        """How many Rust files each folder holds."""
        count: dict[Path, int] = defaultdict(int)
        for file in self.source.rglob("*.rs"):
            count[file.parent] += 1
        return dict(count)


def within_one_module(cycle: list[Module]) -> bool:
    """Whether a cycle stays within one module below the root and that module's children."""
    first = cycle[0][:1]
    return first != () and all(module[:1] == first for module in cycle)


def shown(module: Module) -> str:
    return "::".join(module) or "(root)"


def findings(crate: Crate) -> list[str]:
    found = [
        f"{crate.name}: import cycle across modules: " + ", ".join(map(shown, cycle))
        for cycle in crate.cycles()
        if not within_one_module(cycle)
    ]
    found += [
        f"{folder}: {count} Rust files in one folder, {SIBLINGS_MAX} at most"
        for folder, count in sorted(crate.folders().items())
        if count > SIBLINGS_MAX
    ]
    return found


def main(arguments: list[str]) -> int:
    sys.setrecursionlimit(10_000)
    report = "--report" in arguments
    edges = "--edges" in arguments
    names = [argument for argument in arguments if not argument.startswith("--")]
    if edges:
        crate = Crate(Path(names[0]))
        for module, targets in sorted(crate.edges.items()):
            print(shown(module), "->", " ".join(sorted(map(shown, targets))))
        return 0
    crates = [Crate(Path(name)) for name in names or sorted(map(str, Path("crates").iterdir()))]
    if report:
        print(f"{'crate':16}{'files':>6}{'largest cycle':>15}{'largest folder':>16}")
        for crate in crates:
            largest = max((len(cycle) for cycle in crate.cycles()), default=0)
            print(f"{crate.name:16}{len(crate.files):6}{largest:15}{max(crate.folders().values(), default=0):16}")
        return 0
    found = [finding for crate in crates for finding in findings(crate)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
