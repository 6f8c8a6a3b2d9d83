//! A node as a launcher starts it: everything it needs is in its environment.

use crate::error::ProbeError;
use crate::node::{self, Identity};
use gridmpi_bootstrap::JobEnv;
use gridmpi_bootstrap::line::Pass;
use gridmpi_net::Listen;
use std::net::TcpListener;

/// How launchers tell a process how many of them there are: MPICH and Intel, Open MPI, Slurm.
const SIZES: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"];

/// Serves the conductor that the environment names, to the end. Returns the exit code.
#[must_use]
pub fn play_node() -> i32 {
    match start() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("gridmpi: {}: {error}", host());
            1
        }
    }
}

fn start() -> Result<(), ProbeError> {
    let here = |error: &dyn std::fmt::Display| ProbeError::Here(error.to_string());
    let env = JobEnv::from_process().map_err(|error| here(&error))?;
    let env = env.ok_or_else(|| {
        ProbeError::Here("started by nobody: this is a part of `gridmpi probe`".to_owned())
    })?;
    let listen = Listen { interface: env.interface.clone(), port: 0 };
    let bound = gridmpi_net::bind(&listen).map_err(|error| here(&error))?;
    let addresses = bound.addresses().iter().copied().take(16).collect();
    let listeners = bound.into_listeners().into_iter().map(TcpListener::from).collect();
    let cluster = env.cluster.to_string();
    let (interface, relays) = (env.interface.clone(), env.relays.clone());
    let who = Identity { cluster, host: host(), of: size(), addresses, interface, relays };
    node::attend(&env.coordinators, &Pass::from(&env), listeners, who)
}

/// The name of this machine.
#[must_use]
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn size() -> Option<u32> {
    let text = SIZES.iter().find_map(|name| std::env::var(name).ok())?;
    text.parse().ok().filter(|size| *size > 0)
}
