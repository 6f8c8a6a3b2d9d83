//! Two processes call each other at once. One of them is played here, message by message: rank 1, the higher.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::*;
use gridmpi_net::handshake::{Answer, AnswerStep, Ask, AskStep, Claim, Identity, Proven};
use gridmpi_net::{Limits, Net};
use gridmpi_wire::{Challenge, JobKey, ProcId, Proof, Strand, Verdict};

const FIRST: Claim = Claim::new(1, Strand::FIRST);

fn higher() -> Identity {
    Identity { me: ProcId(1), procs: 2, job: JOB, key: JobKey::new([9; 32]) }
}

/// Rank 0, that has begun to call rank 1.
struct Lower {
    net: Net,
    address: SocketAddr,
    call: TcpStream,
    answer: Answer,
}

impl Lower {
    /// It waits so long for the proof of one who calls it.
    fn calling(patience: Duration) -> Self {
        let (bound, listener) = (loopback(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = bound.addresses()[0];
        let table = vec![vec![address], vec![listener.local_addr().unwrap()]];
        let mut config = config(0, table);
        config.limits.crossing = patience;
        let net = Net::start(bound, config).unwrap();
        send(&net, 0, 1, 0, vec![1]);
        let (call, _) = listener.accept().unwrap();
        call.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { net, address, call, answer: Answer::new([7; 32]) }
    }

    /// The answer to its hello.
    fn challenge(&mut self) -> [u8; Challenge::LEN] {
        loop {
            let count = self.call.read(self.answer.space()).unwrap();
            if let AnswerStep::Send(challenge) = self.answer.read(count, &higher()).unwrap() {
                return challenge;
            }
        }
    }

    /// Its proof, once it comes.
    fn proven(&mut self) -> Proven {
        loop {
            let count = self.call.read(self.answer.space()).unwrap();
            assert_ne!(count, 0, "it has hung up");
            if let AnswerStep::Proven(proven) = self.answer.read(count, &higher()).unwrap() {
                return proven;
            }
        }
    }
}

/// Calls rank 0 and says hello; what there is to prove.
fn hello(address: SocketAddr, nonce: u8) -> (TcpStream, Ask, [u8; Proof::LEN]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut ask, hello) = Ask::new(&higher(), ProcId(0), [nonce; 32]);
    stream.write_all(&hello).unwrap();
    loop {
        let count = stream.read(ask.space()).unwrap();
        if let AskStep::Send(proof) = ask.read(count, &higher(), FIRST).unwrap() {
            return (stream, ask, proof);
        }
    }
}

#[test]
fn the_call_that_is_further_is_the_one_that_counts() {
    // Longer than a busy machine takes.
    let mut lower = Lower::calling(PATIENCE);
    let (mut stream, mut ask, proof) = hello(lower.address, 1);
    let challenge = lower.challenge();
    lower.call.write_all(&challenge).unwrap();
    // Who has answered two more has met the challenge as well.
    let _others = [hello(lower.address, 2), hello(lower.address, 3)];
    stream.write_all(&proof).unwrap();
    loop {
        let count = stream.read(ask.space()).unwrap();
        assert_ne!(count, 0, "it has hung up");
        match ask.read(count, &higher(), FIRST).unwrap() {
            AskStep::Welcomed(_) => break,
            AskStep::More => {}
            AskStep::Send(_) => panic!("it is asked for its proof again"),
        }
    }
    // Its own call is over, without a proof, and the message comes by this connection.
    assert!(matches!(lower.call.read(&mut [0; 1]), Ok(0) | Err(_)));
    stream.read_exact(&mut [0; 1]).unwrap();
}

#[test]
fn a_hello_that_nobody_proves_holds_up_nothing_for_long() {
    let mut lower = Lower::calling(Limits::default().crossing);
    let _stranger = hello(lower.address, 1);
    let challenge = lower.challenge();
    lower.call.write_all(&challenge).unwrap();
    let proven = lower.proven();
    let welcome = proven.welcome(&higher(), Verdict::Accepted, 1);
    lower.call.write_all(&welcome).unwrap();
    lower.call.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(lower.net.failure(), None);
}
