//! Real clients of a server, each unmodified: the public clients of other systems, an agent's loop
//! on real work, systemd, the command line, and a newcomer who follows the README.

mod agent_loop;
mod attach;
mod background;
mod cli;
mod cluster;
mod cp;
mod doctor;
mod e2b;
mod https;
mod image_build;
mod isorun;
mod line_editing;
mod mcp;
mod newcomer;
mod nodes;
mod openai_agents;
mod programs;
mod recover;
mod reverse_proxies;
mod scripting;
mod swe_rex;
mod systemd;
