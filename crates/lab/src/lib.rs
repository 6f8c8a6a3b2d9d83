//! A wide-area laboratory on one machine: clusters of nodes, each a set of namespaces, joined by
//! links with bandwidth, delay, buffer and loss, carried by an emulator in user space and
//! recorded each millisecond.
//!
//! From the description to the running lab:
//! [`spec`] reads the file (and [`private`] what it says of clusters behind gateways) → [`plan`] gives names, addresses and ways → [`up`] starts the holder
//! → [`hold`] is process 1 of the lab: it builds the [`network`], runs the [`emulator`] and
//! answers [`control`] requests → [`enter`] runs programs in nodes → [`save`] keeps what was
//! seen. Gateways get the rules of [`firewall`]; [`fault`] reads what is to go wrong, [`troubles`]
//! does it, and [`schedule`] draws faults at random.
//!
//! The emulator decides by arithmetic on arrival times: [`queue`] (rate, buffer), [`chance`]
//! (loss), [`flow`] (a direction's fate and counters) do no I/O and know no clock. [`connections`] counts those that send.
//!
//! Nothing of a lab exists outside the holder's namespaces but one directory ([`state`]): when
//! the holder ends, in whatever way, the kernel takes processes and devices with it.

pub mod arrivals;
pub mod chance;
pub mod cli;
pub mod connections;
pub mod control;
pub mod emulator;
pub mod enter;
pub mod error;
pub mod fault;
pub mod fault_cli;
pub mod firewall;
pub mod flow;
pub mod histogram;
pub mod hold;
pub mod host;
pub mod job_file;
pub mod network;
mod output;
pub mod plan;
pub mod private;
pub mod queue;
pub mod save;
pub mod schedule;
pub mod spec;
pub mod state;
mod strike;
mod sys;
pub mod tcp;
pub mod tools;
pub mod traffic;
pub mod troubles;
pub mod up;
