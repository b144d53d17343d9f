"""The checker of phrases finds what it is for, and nothing else."""

import unittest

from phrases import findings, is_prose


class Findings(unittest.TestCase):
    def matched(self, text: str) -> list[str]:
        return [words for _, words, _ in findings(text)]

    def test_a_phrase_is_found_with_its_line(self):
        found = findings("/// Fine.\n/// The client is told of it.\n")
        self.assertEqual([(line, words) for line, words, _ in found], [(2, "is told")])

    def test_a_phrase_over_a_line_end_is_found_once(self):
        found = findings("/// What is\n/// told to a client.\n")
        self.assertEqual([(line, words) for line, words, _ in found], [(1, "is told")])

    def test_upper_case_is_found(self):
        self.assertEqual(self.matched("Somebody reads."), ["Somebody"])

    def test_parts_of_words_and_identifiers_are_not_found(self):
        self.assertEqual(self.matched("a silent fn the_client_is_told() talented"), [])

    def test_plain_sentences_pass(self):
        self.assertEqual(self.matched("The server replays the output that the client missed."), [])

    def test_recorded_data_is_left_out(self):
        self.assertFalse(is_prose("tests/baseline/golden/native.json"))
        self.assertTrue(is_prose("docs/files.md"))
        self.assertTrue(is_prose("Makefile"))


if __name__ == "__main__":
    unittest.main()
