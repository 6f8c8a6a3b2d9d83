//! What strangers can make a relay write.

mod common;

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use gridmpi_relay::{Daemon, Identity};
use tracing::subscriber::with_default;

/// The lines that a relay has written.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_flood_of_strangers_does_not_become_one_of_the_log() {
    let mut config = config(&[]);
    config.identity = Some(Identity::generate().unwrap());
    let daemon = Daemon::new(config).unwrap();
    let (address, handle, log) = (daemon.addresses()[0], daemon.handle(), Log::default());
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let running = std::thread::spawn(move || with_default(subscriber, || daemon.run()));
    let since = Instant::now();
    let refused = || handle.snapshot(PATIENCE).unwrap().unproven().1;
    let begins: [&[u8]; 4] = [b"\x16", b"\x16\x03\x01\x00\x05noise", b"\x8aGridTrk", b"noise"];
    for begin in begins {
        let before = refused();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(begin).unwrap();
            let _ = stream.shutdown(Shutdown::Write);
        }
        while refused() < before + 200 {
            assert!(since.elapsed() < PATIENCE, "{} of 200 refused", refused() - before);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    handle.end();
    handle.end();
    running.join().unwrap().unwrap();
    let lines: Vec<String> =
        log.lines().into_iter().filter(|line| line.contains("refused")).collect();
    // Ten in a second, and how many more there were; what has begun in one second may end in the next.
    let most = 11 * (since.elapsed().as_secs() as usize + 2);
    assert!((10..=most).contains(&lines.len()), "{} lines: {:?}", lines.len(), lines.last());
}
