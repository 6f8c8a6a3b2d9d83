//! A coordinator to meet at.
#![allow(dead_code, reason = "each test uses a part of it")]

use gridmpi_bootstrap::env::{Settings, Yielding};
use gridmpi_bootstrap::{
    BootstrapError, ClusterName, Coordinator, CoordinatorConfig, DataModel, Event, Expected,
    JobEnv, JobTable, JoinRequest, NetworkInfo, ProcInfo, Registration, Secret, register,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub struct Job {
    pub secret: Secret,
    pub coordinator: Coordinator,
    pub events: Receiver<Event>,
}

/// Clusters `a`, `b` … by rank count; a name with `+` joins by hand.
pub fn job(clusters: &[(&str, Option<u32>)]) -> Job {
    job_on(clusters, NetworkInfo::default())
}

pub fn job_on(clusters: &[(&str, Option<u32>)], network: NetworkInfo) -> Job {
    job_at(SocketAddr::new(LOCAL, 0), clusters, network, Secret::random().unwrap())
}

pub fn job_at(
    listen: SocketAddr,
    clusters: &[(&str, Option<u32>)],
    network: NetworkInfo,
    secret: Secret,
) -> Job {
    let expect = |&(name, ranks): &(&str, Option<u32>)| Expected {
        name: ClusterName::new(name.trim_end_matches('+')).unwrap(),
        ranks,
        joins: name.ends_with('+'),
        interface: Some("eth1".to_owned()),
    };
    let config = CoordinatorConfig {
        secret: secret.clone(),
        listen,
        clusters: clusters.iter().map(expect).collect(),
        network,
        reachable: vec![LOCAL],
        relays: None,
        wait_s: 30,
    };
    let (sender, events) = channel();
    Job {
        secret,
        coordinator: Coordinator::start(config, move |event| drop(sender.send(event))).unwrap(),
        events,
    }
}

impl Job {
    pub fn env(&self, cluster: &str) -> JobEnv {
        JobEnv {
            coordinators: vec![self.coordinator.address()],
            job: self.secret.job(),
            key: self.secret.key(),
            cluster: ClusterName::new(cluster).unwrap(),
            relays: None,
            interface: None,
            wait: Duration::from_secs(30),
            settings: Settings { yielding: Yielding::Auto, ..Settings::default() },
        }
    }

    /// The next event that `wanted` accepts; others are passed over.
    pub fn expect<T>(&self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).expect("the event did not come");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    }

    pub fn stranger(&self) -> String {
        self.expect(|event| match event {
            Event::Stranger { problem, .. } => Some(problem.clone()),
            _ => None,
        })
    }
}

pub fn registration(cluster: &str, ranks: u32) -> Registration {
    let procs = (0..ranks)
        .map(|rank| ProcInfo {
            addresses: vec![SocketAddr::new(LOCAL, 7000)],
            host: "here".to_owned(),
            pid: rank,
        })
        .collect();
    Registration {
        cluster: ClusterName::new(cluster).unwrap(),
        procs,
        data_model: DataModel::native(16),
        vendor: "Test MPI".to_owned(),
        tag_ub: i32::MAX,
        credit: None,
        has_relays: false,
    }
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub type Registered = Result<(JobTable, gridmpi_bootstrap::Control), BootstrapError>;

pub fn registering(job: &Job, cluster: &str, ranks: u32) -> std::thread::JoinHandle<Registered> {
    let (env, registration) = (job.env(cluster), registration(cluster, ranks));
    std::thread::spawn(move || register(&env, registration, soon()))
}

pub fn request(cluster: &str) -> JoinRequest {
    JoinRequest { cluster: ClusterName::new(cluster).unwrap(), host: "there".into(), pid: 5 }
}
