//! Circuits over real sockets: one relay, two, three; ends and resets.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use common::*;
use gridmpi_wire::LegVerdict;

/// Sends so many bytes each way at once and checks what comes, to the end.
fn exchange(mut a: TcpStream, mut b: TcpStream, count: usize) {
    let (there, back) = (noise(1, count), noise(2, count));
    let send = |stream: &TcpStream, bytes: &Vec<u8>| {
        let (mut stream, bytes) = (stream.try_clone().unwrap(), bytes.clone());
        std::thread::spawn(move || {
            stream.write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        })
    };
    let senders = [send(&a, &there), send(&b, &back)];
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        a.read_to_end(&mut got).unwrap();
        got
    });
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert!(got == there, "what came is not what was sent");
    assert!(reader.join().unwrap() == back, "what came back is not what was sent");
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn one_relay_joins_two_legs() {
    let relay = Relay::dialing(&[]);
    let mut b = register(relay.address, 1);
    let (a, b) = circuit(relay.address, 0, &mut b);
    exchange(a, b, 5 << 20);
}

#[test]
fn two_relays_whichever_dials() {
    for is_reversed in [false, true] {
        let first = Relay::dialing(&[]);
        let second = Relay::dialing(&[first.address]);
        let (home, far) = if is_reversed { (&first, &second) } else { (&second, &first) };
        let mut b = register(home.address, 1);
        let (a, b) = circuit(far.address, 0, &mut b);
        exchange(a, b, 20 << 20);
    }
}

#[test]
fn two_that_only_dial_out_meet_at_a_third() {
    let public = Relay::dialing(&[]);
    let (left, right) = (Relay::dialing(&[public.address]), Relay::dialing(&[public.address]));
    let mut b = register(right.address, 1);
    let (a, b) = circuit(left.address, 0, &mut b);
    exchange(a, b, 20 << 20);
}

#[test]
fn what_follows_the_request_waits_for_the_other_end() {
    let first = Relay::dialing(&[]);
    let second = Relay::dialing(&[first.address]);
    let mut b = register(second.address, 1);
    let early = noise(5, 40_000);
    let (address, sent) = (first.address, early.clone());
    let opening = std::thread::spawn(move || open_soon(address, 0, 1, &sent));
    let mut b = b.accept();
    let mut a = opening.join().unwrap();
    let mut got = vec![0; early.len()];
    b.read_exact(&mut got).unwrap();
    assert!(got == early);
    a.write_all(b"more").unwrap();
    let mut got = [0; 4];
    b.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"more");
}

#[test]
fn an_end_is_an_end_and_the_other_way_goes_on() {
    let first = Relay::dialing(&[]);
    let second = Relay::dialing(&[first.address]);
    let mut b = register(second.address, 1);
    let (mut a, mut b) = circuit(first.address, 0, &mut b);
    a.write_all(b"last").unwrap();
    a.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last");
    let much = noise(9, 3 << 20);
    b.write_all(&much).unwrap();
    drop(b);
    let mut got = Vec::new();
    a.read_to_end(&mut got).unwrap();
    assert!(got == much);
}

#[test]
fn a_reset_is_a_reset() {
    for hops in [1, 2] {
        let first = Relay::dialing(&[]);
        let second = if hops == 2 { Some(Relay::dialing(&[first.address])) } else { None };
        let home = second.as_ref().unwrap_or(&first);
        let mut b = register(home.address, 1);
        let (a, mut b) = circuit(first.address, 0, &mut b);
        socket2::SockRef::from(&a).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(a);
        let error = b.read(&mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn nobody_there_is_said_at_once() {
    let relay = Relay::dialing(&[]);
    let _b = register_in(relay.address, 1, 0, 8);
    for nobody in [2, 9] {
        let refused = open(relay.address, 0, nobody, b"early").unwrap_err();
        assert!(matches!(refused, Refused::Verdict(LegVerdict::NoRoute)), "{refused:?}");
    }
}

#[test]
fn a_circuit_is_accepted_by_whom_it_is_for_and_once() {
    let relay = Relay::dialing(&[]);
    let mut b = register(relay.address, 1);
    let address = relay.address;
    let opening = std::thread::spawn(move || open_soon(address, 0, 1, &[]));
    let (from, name) = b.called();
    assert_eq!(from, 0);
    let accept = |me| ask(address, &asker(me), gridmpi_wire::Errand::Accept { circuit: name }, &[]);
    let refused = |result| matches!(result, Err(Refused::Verdict(LegVerdict::NoSuchCircuit)));
    assert!(refused(accept(2)));
    let _leg = accept(1).unwrap();
    assert!(refused(accept(1)));
    opening.join().unwrap();
}

#[test]
fn a_process_that_registers_again_ends_its_first() {
    let relay = Relay::dialing(&[]);
    let mut before = register(relay.address, 1);
    let mut after = register(relay.address, 1);
    assert_eq!(before.stream.read(&mut [0; 1]).unwrap(), 0);
    let _circuit = circuit(relay.address, 0, &mut after);
}
