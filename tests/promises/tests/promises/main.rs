//! What is promised to clients, through the public interface of a real server.
//!
//! The first modules are the correctness table of the shell, grouped by theme: a test runs all
//! rows of its group, each in a shell of its own, and names those that failed.

mod account;
mod answers;
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
mod endings;
mod ends;
mod engines;
mod events;
mod exec;
mod files;
mod heavy;
mod held;
mod images;
mod images_bombs;
mod images_hostile;
mod interrupts;
mod names;
mod network;
mod packages;
mod ports;
mod processes;
mod ready;
mod recordings;
mod registries;
mod returns;
mod sandboxes;
mod scopes;
mod search;
mod session_files;
mod sessions;
mod sleep;
mod state;
mod terminals;
mod texts;
mod writes;
