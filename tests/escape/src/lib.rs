//! Escapes from a sandbox, attempted from inside; the tests are in `tests/`.
