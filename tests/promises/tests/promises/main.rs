//! What Isolet promises its clients, tested through the public interface of a real server.
//!
//! Some modules form the correctness table of the shell, grouped by theme: a test runs all rows
//! of its group, each in a new shell, and lists those that failed.

mod archives;
mod attach;
mod audit;
mod background;
mod bytes;
mod contexts;
mod contexts_bash;
mod contexts_hold;
mod contexts_jupyter;
mod credentials;
mod descriptors;
mod destroyed;
mod dialects;
mod directory_lists;
mod engines;
mod error_answers;
mod events;
mod exec;
mod file_ids;
mod files;
mod heavy;
mod host_names;
mod images;
mod images_bombs;
mod images_hostile;
mod interrupts;
mod last_byte;
mod memory_view;
mod network;
mod packages;
mod pause;
mod ports;
mod processes;
mod processors;
mod reconnects;
mod recordings;
mod registries;
mod restores;
mod sandboxes;
mod scopes;
mod search;
mod session_files;
mod sessions;
mod shell_ends;
mod shell_state;
mod sleep;
mod snapshots;
mod state;
mod terminals;
mod texts;
mod usage;
mod warm_pool;
mod writes;
