//! A TCP proxy that can cut what passes through it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gridmpi_wire::{Challenge, Hello, Proof, Welcome};

/// Forwards connections to one address until it is dropped.
#[allow(dead_code)] // each test file uses its part
pub struct Proxy {
    pub address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    is_closed: Arc<AtomicBool>,
    is_frozen: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
}

#[allow(dead_code)] // each test file uses its part
impl Proxy {
    pub fn new(to: SocketAddr) -> Self {
        Self::passing(to, [usize::MAX; 2])
    }

    /// One that cuts every connection right behind its handshake, so that no frame ever passes.
    pub fn cutting(to: SocketAddr) -> Self {
        Self::passing(to, [Hello::LEN + Proof::LEN, Challenge::LEN + Welcome::LEN])
    }

    /// One that passes so many bytes of each connection there, and back; then it is cut.
    fn passing(to: SocketAddr, most: [usize; 2]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let is_closed = Arc::new(AtomicBool::new(false));
        let is_frozen = Arc::new(AtomicBool::new(false));
        let (opened, closed) = (Arc::clone(&open), Arc::clone(&is_closed));
        let frozen = Arc::clone(&is_frozen);
        let all = Arc::new(AtomicUsize::new(0));
        let made = Arc::clone(&all);
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for near in listener.incoming() {
                let (Ok(near), false) = (near, closed.load(Ordering::SeqCst)) else { return };
                if frozen.load(Ordering::SeqCst) {
                    unanswered.push(near);
                    continue;
                }
                let Ok(far) = TcpStream::connect(to) else { continue };
                let mut open = opened.lock().unwrap();
                open.push(near.try_clone().unwrap());
                open.push(far.try_clone().unwrap());
                made.fetch_add(1, Ordering::SeqCst);
                forward(near.try_clone().unwrap(), far.try_clone().unwrap(), most[0], false);
                forward(far, near, most[1], true);
            }
        });
        Self { address, open, is_closed, is_frozen, made: all }
    }

    /// How many connections have been made in all.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Cuts every connection that passes; new ones pass again. How many there were.
    pub fn cut(&self) -> usize {
        let sockets: Vec<TcpStream> = self.open.lock().unwrap().drain(..).collect();
        for socket in &sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
        sockets.len() / 2
    }

    /// Cuts one of the connections that pass. How many that were.
    pub fn cut_one(&self, seed: usize) -> usize {
        let mut open = self.open.lock().unwrap();
        if open.is_empty() {
            return 0;
        }
        let at = seed % (open.len() / 2) * 2;
        for socket in open.drain(at..at + 2) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        1
    }

    /// How many connections were made and not cut.
    pub fn count(&self) -> usize {
        self.open.lock().unwrap().len() / 2
    }

    /// Cuts; new connections are taken and left without an answer while `is_frozen`.
    pub fn freeze(&self, is_frozen: bool) {
        self.is_frozen.store(is_frozen, Ordering::SeqCst);
        self.cut();
    }

    /// Cuts, and lets nothing pass any more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.cut();
        // Let the acceptor see it.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
    }
}

/// What is more than `most` bytes is dropped; `cuts`: and the connection ends then.
fn forward(mut from: TcpStream, mut to: TcpStream, most: usize, cuts: bool) {
    std::thread::spawn(move || {
        let (mut bytes, mut left) = (vec![0; 64 * 1024], most);
        while let Ok(count) = from.read(&mut bytes) {
            let here = count.min(left);
            left -= here;
            if count == 0 || to.write_all(&bytes[..here]).is_err() {
                break;
            }
            if left == 0 && cuts {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
