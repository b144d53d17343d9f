"""Tests of imports.py, on crates written for each test."""

import shutil
import tempfile
import unittest
from pathlib import Path

import imports


def crate(files: dict[str, str]) -> imports.Crate:
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    directory = Path(folder) / "sample"
    for name, text in files.items():
        file = directory / "src" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return imports.Crate(directory)


class UseTrees(unittest.TestCase):
    def test_nested_trees_and_renames_are_read(self) -> None:
        self.assertEqual(
            imports.use_paths("crate::{a::{self, B as C}, d::*}"),
            [(("crate", "a"), "a"), (("crate", "a", "B"), "C"), (("crate", "d", "*"), "*")],
        )


class Edges(unittest.TestCase):
    def test_a_reexport_leads_to_the_definition(self) -> None:
        found = crate({"lib.rs": "mod a; mod b; pub use a::A;", "a.rs": "pub struct A;", "b.rs": "use crate::A;"})
        self.assertEqual(found.edges[("b",)], {("a",)})

    def test_paths_in_code_count_like_use_lines(self) -> None:
        found = crate({"lib.rs": "mod a; mod b;", "a.rs": "pub fn go() {}", "b.rs": "fn f() { crate::a::go() }"})
        self.assertEqual(found.edges[("b",)], {("a",)})

    def test_a_path_through_an_imported_module_counts(self) -> None:
        found = crate(
            {
                "lib.rs": "mod a; mod b;",
                "a.rs": "pub mod c;",
                "a/c.rs": "pub fn go() {}",
                "b.rs": "use crate::a; fn f() { a::c::go() }",
            }
        )
        self.assertIn(("a", "c"), found.edges[("b",)])

    def test_comments_strings_and_tests_do_not_count(self) -> None:
        found = crate(
            {
                "lib.rs": "mod a; mod b;",
                "a.rs": "pub struct A;",
                "b.rs": '// use crate::a;\nconst T: &str = "crate::a::A";\n#[cfg(test)]\nmod tests { use crate::a::A; }',
            }
        )
        self.assertEqual(found.edges[("b",)], set())


class Findings(unittest.TestCase):
    def test_a_cycle_across_modules_is_found(self) -> None:
        found = crate({"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B;", "b.rs": "use crate::a::A;"})
        self.assertEqual(found.cycles(), [[("a",), ("b",)]])
        self.assertIn("import cycle across modules: a, b", imports.findings(found)[0])

    def test_a_cycle_of_a_module_and_its_children_is_allowed(self) -> None:
        found = crate({"lib.rs": "mod a;", "a.rs": "mod b; use b::B;", "a/b.rs": "use super::A;"})
        self.assertEqual(found.cycles(), [[("a",), ("a", "b")]])
        self.assertEqual(imports.findings(found), [])

    def test_a_folder_with_too_many_files_is_found(self) -> None:
        files = {f"m{number}.rs": "" for number in range(imports.SIBLINGS_MAX + 1)}
        self.assertIn("Rust files in one folder", imports.findings(crate(files))[0])


if __name__ == "__main__":
    unittest.main()
