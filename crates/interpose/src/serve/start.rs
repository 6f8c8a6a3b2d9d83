//! `MPI_Init`, `MPI_Finalize`, `MPI_Abort` (MPI 4.1 §11.2).

use super::communicator::reap;
use crate::communicator::Spanning;
use crate::direct::Direct;
use crate::error::{Result, check};
use crate::guard::Lift;
use crate::last_words;
use crate::meeting::{self, Met};
use crate::progress::advance;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use std::ffi::{c_char, c_int};
use std::time::{Duration, Instant};

/// How long `MPI_Finalize` waits for the other clusters to take what was sent to them.
const DRAIN: Duration = Duration::from_secs(60);

/// `MPI_Init`.
pub unsafe fn init<A: Abi>(
    rt: &'static Runtime<A>,
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
) -> Result<()> {
    // SAFETY: the program's arguments.
    check(unsafe { rt.vendor.init(argc, argv) })?;
    enter_job(rt);
    Ok(())
}

/// `MPI_Init_thread`: the vendor's level is ours, since we are safe at any (MPI 4.1 §11.6.2).
pub unsafe fn init_thread<A: Abi>(
    rt: &'static Runtime<A>,
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> Result<()> {
    // SAFETY: the program's arguments.
    check(unsafe { rt.vendor.init_thread(argc, argv, required, provided) })?;
    enter_job(rt);
    Ok(())
}

/// Meets the other clusters if this process was started for a job; else stays inert.
fn enter_job<A: Abi>(rt: &'static Runtime<A>) {
    let met = match meeting::meet(rt) {
        Ok(None) => return,
        Ok(Some(met)) => met,
        Err(reason) => {
            last_words::say(&reason);
            // SAFETY: the vendor is initialised.
            unsafe { rt.vendor.abort(A::comm_world(), 1) };
            std::process::exit(1);
        }
    };
    let Met { job, world } = met;
    rt.activate(job);
    crate::tool::begin(rt);
    if world.is_spanning() {
        let world = Spanning::new(A::comm_world(), world);
        let tag_ub = *rt.job().tag_ub;
        let direct = Direct::new(&rt.vendor, rt.spanning.kinds(), &world, tag_ub);
        rt.join_clusters(world);
        if let Some(direct) = direct.filter(|_| !rt.job().yields) {
            rt.open_direct(direct);
        }
    }
}

/// `MPI_Finalize`: all processes of the job come here before any leaves, and what was sent is taken.
pub unsafe fn finalize<A: Abi>(rt: &'static Runtime<A>) -> Result<()> {
    if let Some(world) = rt.tokens.spanning(A::comm_world()) {
        // SAFETY: a communicator of ours.
        unsafe { super::barrier(rt, A::comm_world()) }.map_err(|error| error.on(&world))?;
        // What had messages under way when it was given back.
        advance(rt)?;
        reap(rt)?;
        rt.job().buffered.drain(rt)?;
    }
    super::probe::release_tokens(rt)?;
    // Delete callbacks of attributes run in it, and may communicate (MPI 4.1 §11.2.4).
    let lift = Lift::new();
    // SAFETY: the program's call.
    let finalized = check(unsafe { rt.vendor.finalize() });
    drop(lift);
    rt.deactivate();
    let job = rt.job();
    let drained = job.net.shutdown(Instant::now() + DRAIN);
    if let (false, Some(failure)) = (drained, job.net.failure()) {
        eprintln!("gridmpi: after MPI_Finalize: {failure}");
    }
    if let Some(control) = &job.control {
        control.finalized();
    }
    finalized
}

/// `MPI_Abort`: in every cluster, whatever the communicator (MPI 4.1 §11.4 allows it).
pub unsafe fn abort<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    errorcode: c_int,
) -> Result<()> {
    rt.job().tell_abort(errorcode);
    last_words::await_reader();
    // SAFETY: the program's arguments.
    check(unsafe { rt.vendor.abort(comm, errorcode) })
}
