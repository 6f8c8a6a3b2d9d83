//! A TCP proxy that can cut what passes through it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Forwards connections to one address until it is dropped.
#[allow(dead_code)] // each test file uses its part
pub struct Proxy {
    pub address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    is_closed: Arc<AtomicBool>,
    is_frozen: Arc<AtomicBool>,
}

#[allow(dead_code)] // each test file uses its part
impl Proxy {
    pub fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let is_closed = Arc::new(AtomicBool::new(false));
        let is_frozen = Arc::new(AtomicBool::new(false));
        let (opened, closed) = (Arc::clone(&open), Arc::clone(&is_closed));
        let frozen = Arc::clone(&is_frozen);
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
                forward(near.try_clone().unwrap(), far.try_clone().unwrap());
                forward(far, near);
            }
        });
        Self { address, open, is_closed, is_frozen }
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

fn forward(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count) = from.read(&mut bytes) {
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
