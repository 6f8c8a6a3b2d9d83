//! How the processes of a job meet inside `MPI_Init`: each listens, each cluster gathers the
//! addresses at its rank 0, that meets the others at the coordinator, and hands the table round.

use crate::error::{check, tell};
use crate::job::{Job, JobParts};
use crate::matb::Matb;
use crate::pacing::{self, Wish};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Handle, Named};
use gridmpi_bootstrap::{
    Control, DataModel, JobEnv, JobTable, ProcInfo, Registration, Via, Yielding,
};
use gridmpi_engine::{Communicator, JobMap};
use gridmpi_net::{
    Bound, Congestion, Limits, Listen, Lost, Net, NetConfig, Relays, Security, UNSAID, Way,
};
use gridmpi_wire::ProcId;
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Of the thread that tells of a lost process, bytes.
const TELLER_STACK: usize = 512 << 10;

/// What came of it.
pub(crate) struct Met<A: Abi> {
    pub(crate) job: Job<A>,
    pub(crate) world: Communicator,
}

/// Why there is no job; for a person to read.
type Reason = String;

/// Rank and size in the vendor's world.
#[derive(Clone, Copy)]
struct Here {
    rank: usize,
    size: usize,
}

/// Meets the job that the environment names. `Ok(None)`: there is none.
///
/// # Errors
/// What is wrong, whose fault it is and the remedy.
pub(crate) fn meet<A: Abi>(rt: &'static Runtime<A>) -> Result<Option<Met<A>>, Reason> {
    let Some(env) = JobEnv::from_process().map_err(|e| e.to_string())? else { return Ok(None) };
    if is_spawned(rt) {
        return Ok(None);
    }
    let here = here(rt)?;
    let listen = Listen { interface: env.interface.clone(), port: 0 };
    let bound = gridmpi_net::bind(&listen).map_err(|e| e.to_string())?;
    let procs = gather(rt, here, &proc_info(&bound))?;
    let (table, control) = match procs {
        Some(procs) => {
            let (table, control) = register(rt, &env, procs)?;
            (table, Some(control))
        }
        None => (None, None),
    };
    let table = hand_round(rt, here, table)?;
    assemble(rt, env, here, bound, &table, control).map(Some)
}

/// Processes that a rank has spawned (`MPI_Comm_spawn` on a communicator of one cluster) inherit the environment of the
/// job, but are the cluster's own business: they have a world of their own.
fn is_spawned<A: Abi>(rt: &Runtime<A>) -> bool {
    let mut parent = A::comm_null();
    // SAFETY: a place of our own.
    unsafe { rt.vendor.comm_get_parent(&raw mut parent) };
    parent.bits() != A::comm_null().bits()
}

fn here<A: Abi>(rt: &Runtime<A>) -> Result<Here, Reason> {
    let (mut rank, mut size) = (0, 0);
    // SAFETY: places of our own.
    unsafe {
        vendor(rt.vendor.comm_rank(A::comm_world(), &raw mut rank))?;
        vendor(rt.vendor.comm_size(A::comm_world(), &raw mut size))?;
    }
    Ok(Here { rank: usize::try_from(rank).unwrap_or(0), size: usize::try_from(size).unwrap_or(1) })
}

fn vendor(code: c_int) -> Result<(), Reason> {
    check(code).map_err(|_| format!("the vendor MPI failed in MPI_Init with error {code}"))
}

fn proc_info(bound: &Bound) -> ProcInfo {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    ProcInfo { addresses: bound.addresses().to_vec(), host, pid: std::process::id() }
}

/// Every process's information at rank 0.
fn gather<A: Abi>(
    rt: &Runtime<A>,
    here: Here,
    own: &ProcInfo,
) -> Result<Option<Vec<ProcInfo>>, Reason> {
    let own = serde_json::to_vec(own).map_err(|e| e.to_string())?;
    let len = c_int::try_from(own.len()).map_err(|e| e.to_string())?;
    let at_root = here.rank == 0;
    let mut lens = vec![0 as c_int; if at_root { here.size } else { 0 }];
    let (int, byte) = (A::datatype(Named::Int), A::datatype(Named::Byte));
    // SAFETY: arrays of our own, as long as the procedure needs them at the root.
    vendor(unsafe {
        let one = (&raw const len).cast();
        rt.vendor.gather(one, 1, int, lens.as_mut_ptr().cast(), 1, int, 0, A::comm_world())
    })?;
    let mut displs = Vec::with_capacity(lens.len());
    let mut total: c_int = 0;
    for len in &lens {
        displs.push(total);
        total = total.checked_add(*len).ok_or("too many processes in one cluster")?;
    }
    let mut all = vec![0u8; usize::try_from(total).unwrap_or(0)];
    // SAFETY: as above; the displacements fill `all` exactly.
    vendor(unsafe {
        let into: *mut c_void = all.as_mut_ptr().cast();
        let (lens, displs) = (lens.as_ptr(), displs.as_ptr());
        rt.vendor.gatherv(
            own.as_ptr().cast(),
            len,
            byte,
            into,
            lens,
            displs,
            byte,
            0,
            A::comm_world(),
        )
    })?;
    if !at_root {
        return Ok(None);
    }
    serde_json::Deserializer::from_slice(&all)
        .into_iter()
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(|e| {
            format!("internal error: a process of this cluster described itself wrongly: {e}")
        })
}

/// At rank 0: meets the other clusters. An error is for this cluster's other processes, too.
fn register<A: Abi>(
    rt: &Runtime<A>,
    env: &JobEnv,
    procs: Vec<ProcInfo>,
) -> Result<(Option<Vec<u8>>, Control), Reason> {
    let registration = Registration {
        cluster: env.cluster.clone(),
        procs,
        data_model: DataModel::native(size_of_long_double(rt)),
        vendor: library_version(rt),
        tag_ub: vendor_tag_ub(rt),
        credit: env.settings.credit,
        has_relays: env.relays.is_some(),
    };
    let (table, control) = gridmpi_bootstrap::register(env, registration, env.deadline())
        .map_err(|e| e.to_string())?;
    let table = serde_json::to_vec(&table).map_err(|e| e.to_string())?;
    Ok((Some(table), control))
}

fn size_of_long_double<A: Abi>(rt: &Runtime<A>) -> u8 {
    let mut size = 0;
    // SAFETY: a place of our own.
    unsafe { rt.vendor.type_size(A::datatype(Named::LongDouble), &raw mut size) };
    u8::try_from(size).unwrap_or(0)
}

fn library_version<A: Abi>(rt: &Runtime<A>) -> String {
    let mut text =
        vec![0u8; usize::try_from(A::MAX_LIBRARY_VERSION_STRING).unwrap_or(256).max(8192)];
    let mut len = 0;
    // SAFETY: a string as long as the standard asks for.
    unsafe { rt.vendor.get_library_version(text.as_mut_ptr().cast::<c_char>(), &raw mut len) };
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    let text = String::from_utf8_lossy(&text[..len]);
    text.lines().next().unwrap_or("").trim_matches(['\0', ' ']).chars().take(200).collect()
}

fn vendor_tag_ub<A: Abi>(rt: &Runtime<A>) -> i32 {
    let (mut value, mut flag): (*mut c_int, c_int) = (std::ptr::null_mut(), 0);
    // SAFETY: a predefined attribute, whose value is the address of an int (MPI 4.1 §9.1.2).
    unsafe {
        let place: *mut c_void = (&raw mut value).cast();
        rt.vendor.comm_get_attr(A::comm_world(), A::TAG_UB, place, &raw mut flag);
        if flag == 0 || value.is_null() { 32767 } else { *value }
    }
}

/// Rank 0's table at every process of the cluster. The wait for other clusters may be long, so it
/// keeps no core busy.
fn hand_round<A: Abi>(
    rt: &Runtime<A>,
    here: Here,
    table: Option<Vec<u8>>,
) -> Result<JobTable, Reason> {
    let mut len = table.as_ref().map_or(0, |t| c_int::try_from(t.len()).unwrap_or(0));
    let mut bytes = table.unwrap_or_default();
    let (int, byte) = (A::datatype(Named::Int), A::datatype(Named::Byte));
    broadcast(rt, (&raw mut len).cast(), 1, int)?;
    if here.rank != 0 {
        bytes.resize(usize::try_from(len).unwrap_or(0), 0);
    }
    broadcast(rt, bytes.as_mut_ptr().cast(), len, byte)?;
    serde_json::from_slice(&bytes)
        .map_err(|e| format!("internal error: the job's table is broken: {e}"))
}

fn broadcast<A: Abi>(
    rt: &Runtime<A>,
    data: *mut c_void,
    count: c_int,
    datatype: A::Datatype,
) -> Result<(), Reason> {
    let (mut request, mut done) = (A::request_null(), 0);
    // SAFETY: memory of our own that stays until the request is done.
    unsafe {
        vendor(rt.vendor.ibcast(data, count, datatype, 0, A::comm_world(), &raw mut request))?;
        let mut rounds = 0u32;
        while done == 0 {
            vendor(rt.vendor.test(&raw mut request, &raw mut done, A::status_ignore()))?;
            rounds = rounds.saturating_add(1);
            rest(rounds);
        }
    }
    Ok(())
}

/// The vendor has no event to wait for, and the other clusters may come in hours.
fn rest(rounds: u32) {
    if rounds < 1000 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn assemble<A: Abi>(
    rt: &'static Runtime<A>,
    env: JobEnv,
    here: Here,
    bound: Bound,
    table: &JobTable,
    control: Option<Control>,
) -> Result<Met<A>, Reason> {
    let ours = table.clusters.iter().position(|c| c.cluster == env.cluster);
    let ours = ours.ok_or_else(|| {
        format!("internal error: cluster {} is not in the job's table", env.cluster)
    })?;
    let before: usize = table.clusters[..ours].iter().map(|c| c.procs.len()).sum();
    let me = ProcId(u32::try_from(before + here.rank).map_err(|e| e.to_string())?);
    let sizes = table
        .clusters
        .iter()
        .map(|c| (c.cluster.to_string(), u32::try_from(c.procs.len()).unwrap_or(0)));
    let map = JobMap::contiguous(sizes);
    let pacing = env.settings.pacing.or(table.network.pacing).unwrap_or_default();
    let told_lost = Arc::new(AtomicBool::new(false));
    let lost = lost(&env, &told_lost);
    let net =
        start_net(&env, table, Setting { pacing, lost, speaks: here.rank == 0 }, me, ours, bound)?;
    let world = Communicator::world(me, &map)
        .ok_or("internal error: this process is not in its own job")?;
    let parts = JobParts {
        net,
        map,
        me,
        vendor_world: world_group(rt)?,
        quiet: duplicate(rt, A::comm_world())?,
        own: duplicate(rt, A::comm_self())?,
        tag_ub: table.tag_ub(),
        matb: Matb::new(table, ours, me),
        pacing,
        yields: yields(rt, env.settings.yielding, guests(table, ours, here)),
        control,
        env,
        told_lost,
    };
    Ok(Met { job: Job::new(parts), world })
}

/// Tells the job that a process of another cluster is lost, from a thread of its own: the program may be in the vendor, waiting for
/// what will never come. If it says so too, that does no harm.
fn lost(env: &JobEnv, told: &Arc<AtomicBool>) -> Lost {
    let (env, told) = (env.clone(), Arc::clone(told));
    Lost(Arc::new(move |failure| {
        let (env, told, failure) = (env.clone(), Arc::clone(&told), failure.to_string());
        let teller = std::thread::Builder::new().name("gridmpi-lost".to_owned());
        // Without a thread the program still says it when it looks.
        let _ = teller.stack_size(TELLER_STACK).spawn(move || {
            if !told.load(Relaxed) {
                drop(gridmpi_bootstrap::suspect(&env, &failure));
            }
        });
    }))
}

/// What the network is started with, besides the job.
struct Setting {
    pacing: gridmpi_bootstrap::Pacing,
    lost: Lost,
    /// It is this process that tells the user what all of its cluster see.
    speaks: bool,
}

fn start_net(
    env: &JobEnv,
    table: &JobTable,
    Setting { pacing: setting, lost, speaks }: Setting,
    me: ProcId,
    ours: usize,
    bound: Bound,
) -> Result<Net, Reason> {
    let congestion = env.settings.congestion.as_deref().map(Congestion::named).unwrap_or_default();
    let matb = env.settings.matb.or(table.network.matb(ours));
    let speaks_for_node = pacing::is_first_of_node(table, ours, me);
    let wish = Wish { setting, congestion, matb }.checked(table, ours, |text| {
        if speaks_for_node {
            tell(text)
        }
    });
    let pacing = pacing::of(wish, table, ours, me);
    let has_broker = pacing.online.is_some();
    let relays = relays(env, table, ours)?;
    let ways = Ways { table, ours, me, has_broker, relays: relays.as_ref() };
    let mut engine = gridmpi_engine::Config::new(me);
    let usual = credit(table.size());
    engine.credit_bytes = table.credit().unwrap_or(usual);
    engine.eager_limit = env.settings.eager_limit.unwrap_or(usual);
    let key = gridmpi_wire::JobKey::new(env.key.bytes());
    let security = table.is_secure().then(|| Security::of_job(env.job.0, &key));
    const { assert!(gridmpi_wire::Strand::MAX as u32 == gridmpi_bootstrap::MOST_CONNECTIONS) };
    let connections = env.settings.connections.or(table.network.connections);
    let connections = connections.map(|count| count as usize);
    let reconnect = table.network.reconnect();
    let limits = Limits { connections, reconnect, ..Limits::default() };
    let config = NetConfig {
        me,
        job: env.job.0,
        key,
        engine,
        peers: ways.to_all(),
        security: security.transpose().map_err(|error| error.to_string())?,
        relays,
        limits,
        pacing,
        warn: tell,
        tells_of_absence: speaks.then_some(UNSAID),
        lost: Some(lost),
        forked: crate::forked::watch(),
    };
    Net::start(bound, config).map_err(|e| e.to_string())
}

/// How this process gets to the others.
struct Ways<'a> {
    table: &'a JobTable,
    ours: usize,
    me: ProcId,
    has_broker: bool,
    relays: Option<&'a Relays>,
}

impl Ways<'_> {
    /// To every process of the job, by its number.
    fn to_all(&self) -> Vec<Vec<Way>> {
        let clusters = self.table.clusters.iter().enumerate();
        let procs = clusters.flat_map(|(cluster, it)| it.procs.iter().map(move |p| (cluster, p)));
        procs.enumerate().map(|(number, (cluster, proc))| self.to(number, cluster, proc)).collect()
    }

    fn to(&self, number: usize, cluster: usize, proc: &ProcInfo) -> Vec<Way> {
        // Those of this cluster are the vendor's business, but for the broker.
        if cluster == self.ours && !self.has_broker {
            return Vec::new();
        }
        let is_direct = cluster == self.ours || self.table.via(self.ours, cluster) == Via::Direct;
        match self.relays {
            Some(relays) if !is_direct => {
                // Each pair begins with another one, so that all have something to do.
                let count = relays.addresses.len();
                let first = (self.me.0 as usize).wrapping_add(number);
                (0..count).map(|at| Way::Relay(first.wrapping_add(at) % count)).collect()
            }
            _ => vec![self.directly(cluster, proc)],
        }
    }

    fn directly(&self, cluster: usize, proc: &ProcInfo) -> Way {
        match self.table.dialler(self.ours, cluster).filter(|_| cluster != self.ours) {
            None => Way::Direct(proc.addresses.clone()),
            Some(dialler) if dialler == self.ours => Way::Called(proc.addresses.clone()),
            Some(_) => Way::Awaited,
        }
    }
}

/// Our relays, if there are clusters that are reached through them.
fn relays(env: &JobEnv, table: &JobTable, ours: usize) -> Result<Option<Relays>, Reason> {
    let is_relayed = |other: &usize| *other != ours && table.via(ours, *other) == Via::Relays;
    let Some(other) = (0..table.clusters.len()).find(is_relayed) else { return Ok(None) };
    let access = env.relays.as_ref().ok_or_else(|| {
        let (here, there) = (&env.cluster, &table.clusters[other].cluster);
        format!(
            "cluster {there} is to be reached through relays, but cluster {here} has none: name \
             them by `relays` in the job file, or leave out `via = \"relays\"`"
        )
    })?;
    let number = |size: usize| u32::try_from(size).map_err(|error| error.to_string());
    let before: usize = table.clusters[..ours].iter().map(|cluster| cluster.procs.len()).sum();
    Ok(Some(Relays {
        addresses: access.resolve()?,
        token: gridmpi_wire::JobKey::new(access.token.bytes()),
        first: ProcId(number(before)?),
        count: number(table.clusters[ours].procs.len())?,
        takes_more: table.network.new_relays.unwrap_or(true),
    }))
}

/// Bytes of unexpected messages that each of the other processes may have here: enough for a long, fast
/// link, and 1 GiB for all together. Every process of a job comes to the same number.
fn credit(processes: usize) -> u64 {
    const ALL: u64 = 1 << 30;
    (ALL / processes.max(1) as u64).clamp(1 << 20, 64 << 20)
}

fn world_group<A: Abi>(rt: &Runtime<A>) -> Result<A::Group, Reason> {
    let mut group = A::group_null();
    // SAFETY: a place of our own.
    vendor(unsafe { rt.vendor.comm_group(A::comm_world(), &raw mut group) })?;
    Ok(group)
}

fn duplicate<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> Result<A::Comm, Reason> {
    let mut copy = A::comm_null();
    // SAFETY: a place of our own.
    vendor(unsafe { rt.vendor.comm_dup(comm, &raw mut copy) })?;
    Ok(copy)
}

/// Whether ranks of this node, with the `guests` from other clusters, outnumber its processors.
fn yields<A: Abi>(rt: &Runtime<A>, setting: Yielding, guests: usize) -> bool {
    match setting {
        Yielding::On => true,
        Yielding::Off => false,
        Yielding::Auto => ranks_of_node(rt) + guests > processors(),
    }
}

/// Ranks of other clusters on this node: on a test machine several clusters share one. Names alone do not
/// tell, since every cluster may have its `node1`.
fn guests(table: &JobTable, ours: usize, here: Here) -> usize {
    let Some(own) = table.clusters[ours].procs.get(here.rank) else { return 0 };
    let is_here = |proc: &&ProcInfo| {
        let shares = |address: &SocketAddr| own.addresses.iter().any(|a| a.ip() == address.ip());
        proc.host == own.host && proc.addresses.iter().any(shares)
    };
    let others = table.clusters.iter().enumerate().filter(|(cluster, _)| *cluster != ours);
    others.flat_map(|(_, registration)| &registration.procs).filter(is_here).count()
}

fn ranks_of_node<A: Abi>(rt: &Runtime<A>) -> usize {
    let (mut node, mut size) = (A::comm_null(), 1);
    // SAFETY: places of our own; the communicator is freed again.
    unsafe {
        let (world, kind) = (A::comm_world(), A::COMM_TYPE_SHARED);
        rt.vendor.comm_split_type(world, kind, 0, A::info_null(), &raw mut node);
        if node.bits() != A::comm_null().bits() {
            rt.vendor.comm_size(node, &raw mut size);
            rt.vendor.comm_free(&raw mut node);
        }
    }
    usize::try_from(size).unwrap_or(1)
}

fn processors() -> usize {
    // SAFETY: asks for a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}
