//! Who comes to a server from outside, each as it is: the public client of another system, an
//! agent's loop on real work, systemd, the command line, and a newcomer who follows the README.

mod agent_loop;
mod attach;
mod background;
mod cli;
mod isorun;
mod mcp;
mod newcomer;
mod openai_agents;
mod place;
mod systemd;
