//! A look at the relays that this one dials, for `gridmpi doctor --relay`: TLS's handshake and nothing more, so that no relay takes it for a
//! connection and a running one is not disturbed. And at those that it tells processes of ([`beside`]).

mod beside;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustls::{AlertDescription, Connection, Error};

use crate::config::{Config, Proof};
use crate::tls::{self, Fingerprint, Identity};

pub use beside::{Beside, Useless, look_beside};

/// Time to connect, and for the handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who does not know our certificate says so a round trip after the handshake; this much later silence means that it does.
const WORD: Duration = Duration::from_millis(500);

/// A relay of the settings, and what it is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What the settings call it.
    pub peer: String,
    /// Where they say that it is.
    pub address: String,
    /// Where that is.
    pub at: Option<SocketAddr>,
    /// The round trip of connecting, or what is wrong.
    pub outcome: Result<Duration, Wrong>,
}

/// What keeps two relays from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The name is not known here.
    Name(String),
    /// No connection.
    Connect(String),
    /// Whoever is there does not speak TLS as a relay does.
    NoTls(String),
    /// It has another certificate than the settings say.
    OtherCertificate {
        /// Its own.
        theirs: Fingerprint,
        /// What was expected.
        expected: Fingerprint,
    },
    /// It does not know our certificate.
    Unknown {
        /// Which it would have to know.
        ours: Fingerprint,
    },
}

/// Looks at every relay that these settings dial with TLS, one after the other; within 11 s each.
///
/// # Errors
/// There is no identity to show.
pub fn look(config: &Config) -> Result<Vec<Look>, String> {
    let dialled = config.peers.iter().filter_map(|peer| match (&peer.address, &peer.proof) {
        (Some(address), Proof::Fingerprint(expected)) => Some((peer, address, *expected)),
        _ => None,
    });
    let us = || config.identity.as_ref().ok_or("the settings name no `identity`");
    dialled
        .map(|(peer, address, expected)| {
            let (at, outcome) = one(us()?, address, expected);
            Ok(Look { peer: peer.name.clone(), address: address.clone(), at, outcome })
        })
        .collect()
}

fn one(
    us: &Identity,
    address: &str,
    expected: Fingerprint,
) -> (Option<SocketAddr>, Result<Duration, Wrong>) {
    let name = |error: io::Error| Wrong::Name(error.to_string());
    let found = address.to_socket_addrs().map_err(name).and_then(|mut found| {
        found.next().ok_or_else(|| Wrong::Name("it has no address".to_owned()))
    });
    match found {
        Ok(at) => (Some(at), visit(us, at, expected)),
        Err(wrong) => (None, Err(wrong)),
    }
}

fn visit(us: &Identity, at: SocketAddr, expected: Fingerprint) -> Result<Duration, Wrong> {
    let began = Instant::now();
    let connect = |error: io::Error| Wrong::Connect(error.to_string());
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE).map_err(connect)?;
    let trip = began.elapsed();
    let no_tls = |error: Error| Wrong::NoTls(error.to_string());
    let mut tls = tls::dial_anybody(us).map_err(no_tls)?;
    let deadline = Instant::now() + PATIENCE;
    shake_hands(&mut tls, &mut stream, deadline)?;
    let theirs = tls::proven(&tls);
    let theirs = theirs.ok_or_else(|| Wrong::NoTls("it shows no certificate".to_owned()))?;
    if theirs != expected {
        return Err(Wrong::OtherCertificate { theirs, expected });
    }
    let word = Instant::now() + WORD + 2 * trip;
    match read_on(&mut tls, &mut stream, word) {
        // It waits for us to go on.
        Ok(false) => Ok(trip),
        Ok(true) | Err(_) => Err(Wrong::Unknown { ours: us.fingerprint() }),
    }
}

fn shake_hands(
    tls: &mut Connection,
    stream: &mut TcpStream,
    deadline: Instant,
) -> Result<(), Wrong> {
    let no_tls = |what: String| Wrong::NoTls(what);
    while tls.is_handshaking() || tls.wants_write() {
        if tls.wants_write() {
            write(tls, stream, deadline).map_err(|error| no_tls(error.to_string()))?;
        } else {
            match read_on(tls, stream, deadline) {
                Ok(true) => {}
                Ok(false) => return Err(no_tls("it does not answer".to_owned())),
                Err(why) => return Err(no_tls(why)),
            }
        }
    }
    Ok(())
}

fn write(tls: &mut Connection, stream: &mut TcpStream, deadline: Instant) -> io::Result<()> {
    stream.set_write_timeout(Some(left(deadline)))?;
    tls.write_tls(stream).map(drop)?;
    stream.flush()
}

/// Reads once: whether something came before the deadline. An error: it ended, or said what is no TLS, or that it will not have us.
fn read_on(
    tls: &mut Connection,
    stream: &mut TcpStream,
    deadline: Instant,
) -> Result<bool, String> {
    let text = |error: io::Error| error.to_string();
    stream.set_read_timeout(Some(left(deadline))).map_err(text)?;
    match tls.read_tls(&mut Bounded(stream)) {
        Ok(0) => Err("it has closed the connection".to_owned()),
        Ok(_) => match tls.process_new_packets() {
            Ok(_) => Ok(true),
            Err(Error::AlertReceived(AlertDescription::HandshakeFailure)) => {
                Err("it speaks no version or cipher of ours".to_owned())
            }
            Err(error) => Err(error.to_string()),
        },
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// One read, of at most 16 KiB.
struct Bounded<'a>(&'a mut TcpStream);

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(16 << 10);
        self.0.read(&mut buffer[..most])
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Peer;
    use crate::daemon::Daemon;
    use std::net::TcpListener;

    fn peer(address: String, print: Fingerprint) -> Peer {
        let address = Some(address);
        let proof = Proof::Fingerprint(print);
        Peer { name: "other".to_owned(), address, proof, connections: 1, rate: None, jobs: None }
    }

    fn seen(us: &Identity, address: String, print: Fingerprint) -> Result<Duration, Wrong> {
        let peers = vec![peer(address, print)];
        let config = Config { identity: Some(us.clone()), peers, ..Config::default() };
        look(&config).unwrap().remove(0).outcome
    }

    #[test]
    fn a_relay_is_seen_as_it_is() {
        let [them, us, stranger] = [(); 3].map(|()| Identity::generate().unwrap());
        let known = Peer { address: None, ..peer(String::new(), us.fingerprint()) };
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let config = Config {
            listen,
            identity: Some(them.clone()),
            peers: vec![known],
            ..Config::default()
        };
        let daemon = Daemon::new(config).unwrap();
        let (at, handle) = (daemon.addresses()[0].to_string(), daemon.handle());
        let running = std::thread::spawn(move || daemon.run());

        assert!(seen(&us, at.clone(), them.fingerprint()).is_ok());
        let (theirs, expected) = (them.fingerprint(), stranger.fingerprint());
        let wrong = seen(&us, at.clone(), expected);
        assert_eq!(wrong, Err(Wrong::OtherCertificate { theirs, expected }));
        let wrong = seen(&stranger, at, theirs);
        assert_eq!(wrong, Err(Wrong::Unknown { ours: stranger.fingerprint() }));
        handle.end();
        handle.end();
        running.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_no_relay_is_said_to_be_none() {
        let us = Identity::generate().unwrap();
        let print = us.fingerprint();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let talking = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
            let _ = stream.read(&mut [0; 1000]);
        });
        assert!(matches!(seen(&us, at.clone(), print), Err(Wrong::NoTls(_))));
        talking.join().unwrap();
        assert!(matches!(seen(&us, at, print), Err(Wrong::Connect(_))));
        let nowhere = seen(&us, "no.such.host.invalid:1".to_owned(), print);
        assert!(matches!(nowhere, Err(Wrong::Name(_))));
        let config = Config { peers: vec![peer("x:1".to_owned(), print)], ..Config::default() };
        assert!(look(&config).unwrap_err().contains("identity"));
    }
}
