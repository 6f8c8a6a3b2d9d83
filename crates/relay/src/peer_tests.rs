//! Another relay that has proven itself and then does what it may not, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gridmpi_wire::{JobKey, ProcId};

use crate::cell::{Cell, FIRST_WINDOW, MAX_DATA, RelayId, data_head};
use crate::greet::{GreetStep, Greeting, Means};
use crate::{Config, Daemon, Peer, Proof};

const PATIENCE: Duration = Duration::from_secs(10);

fn secret() -> JobKey {
    JobKey::new([4; 32])
}

/// A relay without a process of ours that has met the one at this address.
fn meet(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut out = Vec::new();
    let means = Means::Secrets(vec![secret()]);
    let mut greeting = Greeting::dial(RelayId([9; 16]), means, [1; 32], &mut out);
    loop {
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let mut bytes = vec![0; greeting.due()];
        stream.read_exact(&mut bytes).unwrap();
        if let GreetStep::Met { .. } = greeting.read(&bytes, &mut out).unwrap() {
            stream.write_all(&out).unwrap();
            return stream;
        }
    }
}

/// Says it; whether the relay then ends the connection.
fn is_cut_off(mut stream: TcpStream, bytes: &[u8]) -> bool {
    // It may be cut off before all is said.
    let _ = stream.write_all(bytes);
    let mut space = [0; 4096];
    loop {
        match stream.read(&mut space) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_cut_off_and_others_go_on() {
    let peer = Peer {
        name: "peer".to_owned(),
        address: None,
        proof: Proof::Secret(secret()),
        connections: 1,
        rate: None,
    };
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let daemon = Daemon::new(Config { listen, peers: vec![peer], ..Config::default() }).unwrap();
    let (address, handle) = (daemon.addresses()[0], daemon.handle());
    let thread = std::thread::spawn(move || daemon.run());
    let mut honest = meet(address);
    let cell = |circuit, cell: Cell| {
        let mut bytes = Vec::new();
        cell.encode(circuit, &mut bytes);
        bytes
    };
    let open = |circuit| {
        cell(circuit, Cell::Open { job: [0; 16], from: ProcId(0), to: ProcId(1), hops: 3 })
    };
    let cases = [
        vec![0xff; 100],
        // A length beyond what a cell may have, and one that its kind cannot have.
        [&data_head(1, MAX_DATA + 1)[..], &[0; 100]].concat(),
        vec![7, 1, 0, 0, 1, 0, 0, 0],
        // A circuit that was never opened, one that is not the sender's to open, the same number twice.
        [&data_head(5, 1)[..], &[0]].concat(),
        cell(7, Cell::Credit(1)),
        open(2),
        [open(3), open(3)].concat(),
        // A way by somebody else.
        cell(
            0,
            Cell::Route(
                crate::cell::Span { job: [0; 16], first: ProcId(0), count: 1 },
                vec![RelayId([1; 16])],
            ),
        ),
    ];
    for bytes in cases {
        assert!(is_cut_off(meet(address), &bytes), "{bytes:?}");
    }
    // What is refused, not forbidden: nobody is there, and the data behind it is dropped.
    let much = vec![0; FIRST_WINDOW];
    honest
        .write_all(
            &[open(1), data_head(1, much.len()).to_vec(), much, cell(0, Cell::Ping(77))].concat(),
        )
        .unwrap();
    let (answer, pong) =
        (cell(1, Cell::Answer(gridmpi_wire::LegVerdict::NoRoute)), cell(0, Cell::Pong(77)));
    let mut got = Vec::new();
    let holds = |got: &[u8], part: &[u8]| got.windows(part.len()).any(|some| some == part);
    while !(holds(&got, &answer) && holds(&got, &pong)) {
        let mut space = [0; 100];
        let count = honest.read(&mut space).unwrap();
        assert!(count > 0, "the honest one was cut off too");
        got.extend_from_slice(&space[..count]);
    }
    let seen = handle.snapshot(PATIENCE).unwrap();
    assert_eq!((seen.circuits(), seen.memory()[1]), (0, 0));
    handle.end();
    handle.end();
    thread.join().unwrap().unwrap();
}
