//! Clusters meet over real sockets: the good case, and everything that may go wrong.

mod common;

use common::{LOCAL, Registered, job, job_at, registering, registration, request, soon};
use gridmpi_bootstrap::{
    BootstrapError, EVERYWHERE, Event, JobEnv, JobKey, JoinOrder, Listening, NetworkInfo, Parting,
    Secret, abort, join, register, suspect,
};
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn refused(outcome: Registered) -> String {
    match outcome {
        Err(BootstrapError::Refused(reason)) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("was taken in"),
    }
}

#[test]
fn clusters_that_come_get_one_table_and_what_they_tell_is_heard() {
    let job = job(&[("a", Some(2)), ("b", Some(3))]);
    let a = registering(&job, "a", 2);
    job.expect(|event| matches!(event, Event::Registered(who) if who.cluster == 0).then_some(()));
    let progress = job.coordinator.progress();
    assert!(progress[0].registered && !progress[1].registered);
    let b = registering(&job, "b", 3);
    let ((table_a, control_a), (table_b, control_b)) =
        (a.join().unwrap().unwrap(), b.join().unwrap().unwrap());
    assert_eq!((&table_a, table_a.size()), (&table_b, 5));

    control_a.abort(7, "MPI_Abort was called");
    let (cluster, code) = job.expect(|event| match event {
        Event::Aborted { cluster, code, .. } => Some((*cluster, *code)),
        _ => None,
    });
    assert_eq!((cluster, code), (0, 7));
    // Before it is sent anything more: a connection that ends with something unread looks broken.
    drop(control_a);
    let away = job.expect(|event| match event {
        Event::Away(who, parting) => Some((who.cluster, *parting)),
        _ => None,
    });
    assert_eq!(away, (0, Parting::Closed), "its process has ended, as far as one can see");
    job.coordinator.end(7, "cluster a aborted");
    control_b.finalized();
    job.expect(|event| matches!(event, Event::Finalized(who) if who.cluster == 1).then_some(()));
}

#[test]
fn the_table_of_a_job_of_many_processes_reaches_all() {
    let job = job(&[("a", None), ("b", None)]);
    let coming = [("a", 3000), ("b", 1)].map(|(cluster, ranks)| registering(&job, cluster, ranks));
    for outcome in coming.map(|it| it.join().unwrap()) {
        let (table, control) = outcome.unwrap();
        assert_eq!(table.clusters.iter().map(|it| it.procs.len()).sum::<usize>(), 3001);
        control.finalized();
    }
}

#[test]
fn any_rank_may_carry_an_abort() {
    let job = job(&[("a", None), ("b", None)]);
    abort(&job.env("b"), 42, "rank 5 called MPI_Abort").unwrap();
    let found = job.expect(|event| match event {
        Event::Aborted { cluster, code, reason } => Some((*cluster, *code, reason.clone())),
        _ => None,
    });
    assert_eq!(found, (1, 42, "rank 5 called MPI_Abort".to_owned()));
}

#[test]
fn a_node_with_many_addresses_tells_the_best() {
    let job = job(&[("a", None)]);
    let mut registration = registration("a", 1);
    registration.procs[0].addresses = (1..=40).map(|port| SocketAddr::new(LOCAL, port)).collect();
    let (table, _) = register(&job.env("a"), registration, soon()).unwrap();
    let told = &table.clusters[0].procs[0].addresses;
    assert_eq!((told.len(), told[0].port()), (16, 1));
}

#[test]
fn a_suspicion_is_no_abort() {
    let job = job(&[("a", None)]);
    suspect(&job.env("a"), "lost rank 3").unwrap();
    job.expect(|event| matches!(event, Event::Suspected { cluster: 0, .. }).then_some(()));
    let (_, control) = registering(&job, "a", 1).join().unwrap().unwrap();
    control.suspect("lost rank 4");
    job.expect(|event| match event {
        Event::Suspected { reason, .. } => reason.contains("rank 4").then_some(()),
        _ => None,
    });
}

#[test]
fn a_wrong_rank_count_reaches_both_ends() {
    let job = job(&[("a", Some(4)), ("b", Some(1))]);
    let reason = refused(registering(&job, "a", 1).join().unwrap());
    let failed = job.expect(|event| match event {
        Event::Failed(reason) => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(reason, failed);
    assert!(reason.contains("4 ranks"), "{reason}");
}

#[test]
fn an_unknown_cluster_is_told_the_known_ones() {
    let job = job(&[("a", None), ("b", None)]);
    let reason = refused(registering(&job, "c", 1).join().unwrap());
    assert!(reason.contains("`c`") && reason.contains("a, b"), "{reason}");
    job.expect(|event| matches!(event, Event::Refused { .. }).then_some(()));
}

#[test]
fn a_second_cluster_of_one_name_is_refused_and_the_first_goes_on() {
    let job = job(&[("a", None), ("b", None)]);
    let first = registering(&job, "a", 1);
    job.expect(|event| matches!(event, Event::Registered(_)).then_some(()));
    let reason = refused(registering(&job, "a", 1).join().unwrap());
    assert!(reason.contains("twice"), "{reason}");
    let last = registering(&job, "b", 1);
    assert!(first.join().unwrap().is_ok() && last.join().unwrap().is_ok());
}

#[test]
fn those_who_wait_are_told_why_the_job_ends() {
    let job = job(&[("a", None), ("b", None)]);
    let first = registering(&job, "a", 1);
    job.expect(|event| matches!(event, Event::Registered(_)).then_some(()));
    job.coordinator.end(1, "cluster b never came");
    assert_eq!(refused(first.join().unwrap()), "cluster b never came");
}

#[test]
fn a_deadline_ends_the_wait_of_a_rank() {
    let job = job(&[("a", None), ("b", None)]);
    let deadline = Instant::now() + Duration::from_millis(300);
    let outcome = register(&job.env("a"), registration("a", 1), deadline);
    assert!(matches!(outcome, Err(BootstrapError::Timeout(_))));
}

#[test]
fn a_wrong_key_is_noticed_by_both_ends_and_harms_nobody() {
    let job = job(&[("a", None)]);
    let mut env = job.env("a");
    env.key = JobKey::from_bytes([1; 32]);
    let outcome = register(&env, registration("a", 1), soon());
    assert!(matches!(outcome, Err(BootstrapError::WrongKey(_))));
    assert!(job.stranger().contains("another key"));
    assert!(registering(&job, "a", 1).join().unwrap().is_ok());
}

#[test]
fn another_job_is_told_so() {
    let job = job(&[("a", None)]);
    let mut env = job.env("a");
    env.job = Secret::random().unwrap().job();
    let outcome = register(&env, registration("a", 1), soon());
    assert!(matches!(outcome, Err(BootstrapError::OtherJob(_))));
    assert!(job.stranger().contains("another job"));
}

#[test]
fn another_job_at_one_address_does_not_hide_that_another_does_not_answer() {
    let job = job(&[("a", None)]);
    let silent = TcpListener::bind((LOCAL, 0)).unwrap();
    let mut env = job.env("a");
    env.job = Secret::random().unwrap().job();
    env.coordinators.insert(0, silent.local_addr().unwrap());
    let deadline = Instant::now() + Duration::from_secs(2);
    let error = register(&env, registration("a", 1), deadline).err().unwrap().to_string();
    for address in &env.coordinators {
        assert!(error.contains(&address.to_string()), "{error}");
    }
    for part in ["cannot reach", "says nothing", "belongs to another job", "--listen"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn another_version_is_told_ours() {
    let job = job(&[("a", None)]);
    let mut stream = TcpStream::connect(job.coordinator.address()).unwrap();
    let mut hello = b"GMPI-RDV".to_vec();
    hello.extend([99, 0]);
    hello.resize(60, 0);
    stream.write_all(&hello).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"GMPI-RDV\x02\x00");
    assert!(job.stranger().contains("version 99"));
}

/// True when the far end has closed or reset the connection within its hand-shake time.
fn is_dropped(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn noise_is_dropped_on_its_first_bytes() {
    let job = job(&[("a", None)]);
    let mut stream = TcpStream::connect(job.coordinator.address()).unwrap();
    let noise = vec![0xa5; 1 << 16];
    let mut sent = 0usize;
    // A gigabyte is offered; the coordinator must not take more than the kernel's buffers hold.
    while sent < 1 << 30 {
        match stream.write(&noise) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    assert!(sent < 64 << 20, "{sent} bytes of noise were taken");
    assert!(job.stranger().contains("protocol"));
    assert!(registering(&job, "a", 1).join().unwrap().is_ok());
}

#[test]
fn scanners_and_silent_connections_leave_room_for_members() {
    let job = job(&[("a", None)]);
    let address = job.coordinator.address();
    for _ in 0..300 {
        drop(TcpStream::connect(address).unwrap());
    }
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(registering(&job, "a", 1).join().unwrap().is_ok());
    assert!(silent.into_iter().all(is_dropped));
}

#[test]
fn a_half_hello_in_time_is_dropped_later() {
    let job = job(&[("a", None)]);
    let mut stream = TcpStream::connect(job.coordinator.address()).unwrap();
    stream.write_all(b"GMPI").unwrap();
    assert!(is_dropped(stream));
    assert!(job.stranger().contains("did not prove membership"));
}

#[test]
fn an_unreachable_coordinator_is_named() {
    let job = job(&[("a", None)]);
    let env = job.env("a");
    let address = env.coordinators[0];
    drop(job);
    let error = register(&env, registration("a", 1), soon()).err().unwrap().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("refused"), "{error}");
}

#[test]
fn an_address_that_takes_connections_and_says_nothing_keeps_nobody_back() {
    let job = job(&[("a", None)]);
    let silent = TcpListener::bind((LOCAL, 0)).unwrap();
    let mut env = job.env("a");
    env.coordinators.insert(0, silent.local_addr().unwrap());
    let began = Instant::now();
    assert!(register(&env, registration("a", 1), soon()).is_ok());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn clusters_come_by_either_family_and_are_named_by_the_address_they_have() {
    let (everywhere, secret) = (SocketAddr::new(EVERYWHERE, 0), Secret::random().unwrap());
    let job = job_at(everywhere, &[("a", None)], NetworkInfo::default(), secret);
    let at = job.coordinator.address();
    let mut noise = TcpStream::connect((LOCAL, at.port())).unwrap();
    noise.write_all(b"SSH-2.0").unwrap();
    let peer = job.expect(|event| match event {
        Event::Stranger { peer, .. } => Some(peer.ip()),
        _ => None,
    });
    assert_eq!(peer, LOCAL);
    let local = if at.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { LOCAL };
    let env = JobEnv { coordinators: vec![SocketAddr::new(local, at.port())], ..job.env("a") };
    assert!(register(&env, registration("a", 1), soon()).is_ok());
    job.expect(|event| match event {
        Event::Registered(who) => (who.peer.ip() == local).then_some(()),
        _ => None,
    });
}

#[test]
fn the_coordinators_end_is_noticed_by_who_waits_for_it() {
    let job = job(&[("a", None)]);
    let (_, control) = registering(&job, "a", 1).join().unwrap().unwrap();
    drop(job);
    // It waits for as long as `reconnect` says where the coordinator may come back; who is nowhere does not.
    let began = Instant::now();
    control.finalized();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_launcher_joins_by_token_takes_orders_and_reports() {
    let job = job(&[("a", None), ("b+", None)]);
    let (sender, orders) = channel();
    let token = Secret::parse(&job.secret.reveal()).unwrap();
    let addresses = [job.coordinator.address()];
    let (terms, control) =
        join(&addresses, None, &token, request("b"), Listening::Now, soon(), move |o| {
            sender.send(o).unwrap()
        })
        .unwrap();
    assert_eq!(terms.coordinators, addresses);
    assert_eq!((terms.wait_s, terms.interface.as_deref()), (30, Some("eth1")));
    job.expect(|event| match event {
        Event::Joined(who, request) => Some((who.cluster, request.pid) == (1, 5)),
        _ => None,
    });
    job.coordinator.signal(1, 10);
    job.coordinator.end(3, "over");
    assert_eq!(orders.recv().unwrap(), JoinOrder::Signal(10));
    assert_eq!(orders.recv().unwrap(), JoinOrder::Ended { code: 3, reason: "over".to_owned() });
    control.exited(3);
    let code = job.expect(|event| match event {
        Event::JoinExited(_, code) => Some(*code),
        _ => None,
    });
    assert_eq!(code, 3);
}

#[test]
fn a_launcher_waits_for_a_coordinator_that_listens_soon() {
    let secret = Secret::random().unwrap();
    // What listened before it: it takes a connection, and goes.
    let before = TcpListener::bind((LOCAL, 0)).unwrap();
    let at = before.local_addr().unwrap();
    let joining = |listening| {
        let secret = secret.clone();
        std::thread::spawn(move || {
            join(&[at], None, &secret, request("b"), listening, soon(), drop)
        })
    };
    let joined = joining(Listening::Soon);
    drop(before.accept().unwrap());
    drop(before);
    let refused = joining(Listening::Now).join().unwrap().err().unwrap();
    assert!(refused.to_string().contains("refused"), "{refused}");
    std::thread::sleep(Duration::from_millis(500));
    assert!(!joined.is_finished(), "it does not wait");
    let job = job_at(at, &[("b+", None)], NetworkInfo::default(), secret);
    assert!(joined.join().unwrap().is_ok());
    job.expect(|event| matches!(event, Event::Joined(..)).then_some(()));
}

#[test]
fn joining_with_a_wrong_token_or_name_says_so() {
    let job = job(&[("a", None), ("b+", None)]);
    let addresses = [job.coordinator.address()];
    let other = Secret::random().unwrap();
    let wrong =
        join(&addresses, None, &other, request("b"), Listening::Now, soon(), drop).err().unwrap();
    assert!(wrong.to_string().contains("another job"), "{wrong}");
    for (cluster, part) in [("x", "no cluster"), ("a", "itself")] {
        let error =
            join(&addresses, None, &job.secret, request(cluster), Listening::Now, soon(), drop)
                .err()
                .unwrap();
        assert!(error.to_string().contains(part), "{error}");
    }
}
