//! A relay in a process that has no descriptors left. Alone in its file, since the limit is the process's.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::*;
use gridmpi_leg::{Ask, AskStep};
use gridmpi_wire::{Errand, ProcId};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn without_descriptors_it_waits_and_goes_on_when_there_are_some() {
    let relay = Relay::dialing(&[]);
    let mut known = register(relay.address, 1);
    let (mut a, mut b) = circuit(relay.address, 0, &mut known);
    let waiting = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    // The next descriptor would have this number.
    let next = std::fs::File::open("/dev/null").unwrap();
    let least = std::os::fd::AsRawFd::as_raw_fd(&next) as u64;
    drop(next);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(least), maximum: limit.maximum }).unwrap();
    rustix::net::connect(&waiting, &relay.address).unwrap();
    let mut stream = std::net::TcpStream::from(waiting);
    let errand = Errand::Register { first: ProcId(2), count: 1 };
    let (mut ask, hello) = Ask::new(&asker(2), errand, [5; 32]);
    stream.write_all(&hello).unwrap();
    // Nobody can take it; who waits in vain must not compute in vain, and what stands goes on.
    let before = computed();
    std::thread::sleep(Duration::from_millis(800));
    let spent = computed() - before;
    assert!(
        spent < Duration::from_millis(200),
        "{spent:?} of processor time without anything to do"
    );
    a.write_all(b"goes on").unwrap();
    let mut came = [0; 7];
    std::io::Read::read_exact(&mut b, &mut came).unwrap();
    assert_eq!(&came, b"goes on");
    setrlimit(Resource::Nofile, limit).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let since = Instant::now();
    loop {
        let count = std::io::Read::read(&mut stream, ask.space()).unwrap();
        assert!(count > 0, "closed after {:?}", since.elapsed());
        match ask.read(count, &asker(2)).unwrap() {
            AskStep::More => {}
            AskStep::Send(request) => stream.write_all(&request).unwrap(),
            AskStep::Done => break,
        }
    }
}
