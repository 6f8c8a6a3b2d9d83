//! What noise and many idle peers cost in memory and processor time. One test, since the figures are
//! the whole process's.

mod common;

use std::io::Write;
use std::net::TcpStream;

use std::time::Duration;

use common::*;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn a_gigabyte_of_noise_costs_no_memory_and_is_cut_at_once() {
    let bound = loopback();
    let address = bound.addresses()[0];
    let net = gridmpi_net::Net::start(bound, config(0, vec![vec![address], Vec::new()])).unwrap();
    let noise = pattern(4, 1 << 20);
    let before = resident_bytes();
    let mut written = 0u64;
    while written < 1 << 30 {
        let mut stream = TcpStream::connect(address).unwrap();
        // A closed connection is what we are after, and it shows as an error of a write.
        while let Ok(count) = stream.write(&noise) {
            written += count as u64;
        }
    }
    let stats = net.stats();
    assert!(stats.rejected > 0 && stats.connections == 0 && stats.bytes_in == 0, "{stats:?}");
    assert!(stats.last_rejection.as_ref().unwrap().contains("magic"), "{stats:?}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more in memory");
}

/// Rank 0 has talked to 64 others; all of them live in this process too, so each side of a
/// connection may cost half.
fn sixty_four_idle_peers_cost_little() {
    let before = resident_bytes();
    let nets = nets(65);
    let alone = resident_bytes().saturating_sub(before) / 65;
    for other in 1..65 {
        let wanted = receive(&nets[other as usize], 0, 0, 1000);
        let sent = send(&nets[0], 0, other, 0, pattern(1, 1000));
        finish(&nets[other as usize], wanted);
        finish(&nets[0], sent);
    }
    let connected = resident_bytes().saturating_sub(before);
    println!("a network alone {alone} bytes, 65 with 64 connections {connected} bytes");
    assert!(connected < 65 * (256 << 10), "{connected} bytes for 65 networks, 64 connections");
    // Let the last acknowledgements go; then all of them sleep.
    std::thread::sleep(Duration::from_millis(100));
    let before = cpu_time();
    std::thread::sleep(Duration::from_millis(500));
    let spent = cpu_time() - before;
    assert!(spent < Duration::from_millis(50), "65 idle networks were busy for {spent:?}");
    shutdown(nets);
}

#[test]
fn idle_and_hostile_peers_cost_little() {
    sixty_four_idle_peers_cost_little();
    a_gigabyte_of_noise_costs_no_memory_and_is_cut_at_once();
}
