//! Ways out of a sandbox, tried from inside; the tests are in `tests/`.
