//! A look at the relays that this one tells processes of (`beside`): the begin of a leg for each token, up to the word that proves it, and nothing
//! more, so that nobody is registered.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gridmpi_leg::{Ask, AskStep, Asker, LegError};
use gridmpi_wire::{Errand, LegVerdict, ProcId};

use super::{PATIENCE, left};
use crate::accept::nonce;
use crate::config::{Config, Token};

/// A relay that processes are told of, and what it is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Where it is.
    pub at: SocketAddr,
    /// The round trip of connecting, where that was possible.
    pub trip: Option<Duration>,
    /// All that is wrong.
    pub wrong: Vec<Useless>,
}

/// What keeps processes from using a relay that they are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Useless {
    /// No connection.
    Connect(String),
    /// Whoever is there is no relay.
    NoRelay(String),
    /// It is of another release.
    Release,
    /// It does not know this token of ours, or cannot prove it.
    Token(String),
    /// It is the very one that tells of it.
    Own,
    /// Only processes on this host reach it, and others take no notice.
    Loopback,
    /// There is no token here: nobody registers, so nobody is told.
    NoToken,
}

/// Looks at every relay that these settings tell processes of, all at once; within 5 s and 5 s for each token.
///
/// # Errors
/// There are no random numbers to be had.
pub fn look_beside(config: &Config) -> io::Result<Vec<Beside>> {
    std::thread::scope(|scope| {
        let all: Vec<_> = config
            .beside
            .iter()
            .map(|relay| scope.spawn(move || one(config, relay.socket())))
            .collect();
        all.into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err(ErrorKind::Other.into())))
            .collect()
    })
}

fn one(config: &Config, at: SocketAddr) -> io::Result<Beside> {
    let mut seen = Beside { at, trip: None, wrong: Vec::new() };
    let is_only_here = |listen: &SocketAddr| listen.ip().to_canonical().is_loopback();
    if at.ip().is_loopback() && !config.listen.iter().all(is_only_here) {
        seen.wrong.push(Useless::Loopback);
    }
    let began = Instant::now();
    let stream = match TcpStream::connect_timeout(&at, PATIENCE) {
        Ok(stream) => stream,
        Err(error) => {
            seen.wrong.push(Useless::Connect(error.to_string()));
            return Ok(seen);
        }
    };
    seen.trip = Some(began.elapsed());
    if is_own(&config.listen, at, stream.local_addr().map(|own| own.ip())) {
        seen.wrong.push(Useless::Own);
        return Ok(seen);
    }
    if config.tokens.is_empty() {
        seen.wrong.push(Useless::NoToken);
    }
    let mut first = Some(stream);
    for token in &config.tokens {
        let nonce = nonce()?;
        let stream = first.take().map_or_else(|| TcpStream::connect_timeout(&at, PATIENCE), Ok);
        let proven = stream.map_err(|error| Useless::Connect(error.to_string()));
        let proven = proven.and_then(|stream| prove(&stream, token, nonce));
        // What is wrong with all tokens is said once.
        if let Err(wrong) = proven {
            let is_of_token = matches!(wrong, Useless::Token(_));
            seen.wrong.push(wrong);
            if !is_of_token {
                break;
            }
        }
    }
    Ok(seen)
}

/// Whether we listen there: at an address that is this host's.
fn is_own(listen: &[SocketAddr], at: SocketAddr, from: io::Result<IpAddr>) -> bool {
    let is_here = from.is_ok_and(|from| from.to_canonical() == at.ip());
    let takes = |own: &SocketAddr| {
        let is_any = own.ip().is_unspecified() && (own.is_ipv6() || at.is_ipv4());
        own.port() == at.port() && (is_any || own.ip().to_canonical() == at.ip())
    };
    is_here && listen.iter().any(takes)
}

/// Whoever is there knows the token.
fn prove(mut stream: &TcpStream, token: &Token, nonce: [u8; 32]) -> Result<(), Useless> {
    let deadline = Instant::now() + PATIENCE;
    let broken = |error: io::Error| Useless::NoRelay(error.to_string());
    let asker = Asker { me: ProcId(0), job: [0; 16], token: token.key.clone() };
    let errand = Errand::Register { first: ProcId(0), count: 1 };
    let (mut ask, hello) = Ask::new(&asker, errand, nonce);
    stream.set_write_timeout(Some(left(deadline))).map_err(broken)?;
    stream.write_all(&hello).map_err(broken)?;
    loop {
        stream.set_read_timeout(Some(left(deadline))).map_err(broken)?;
        let count = match stream.read(ask.space()) {
            Ok(0) => return Err(Useless::NoRelay("it has closed the connection".to_owned())),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Useless::NoRelay("it does not answer".to_owned()));
            }
            Err(error) => return Err(broken(error)),
        };
        match ask.read(count, &asker) {
            Ok(AskStep::More) => {}
            // What comes next would register somebody.
            Ok(AskStep::Send(_) | AskStep::Done) => return Ok(()),
            Err(LegError::Refused(LegVerdict::NoCommonVersion)) => return Err(Useless::Release),
            Err(LegError::Refused(LegVerdict::UnknownToken) | LegError::NotGenuine) => {
                return Err(Useless::Token(token.name.clone()));
            }
            Err(error @ (LegError::Refused(_) | LegError::Wire(_))) => {
                return Err(Useless::NoRelay(error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Handle;
    use crate::daemon::Daemon;
    use gridmpi_wire::{JobKey, RelayAddress};
    use std::net::TcpListener;

    fn token(name: &str, byte: u8) -> Token {
        Token { name: name.to_owned(), key: JobKey::new([byte; 32]), jobs: None }
    }

    fn local() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    /// What a relay with these tokens, which listens on loopback only, says of one at `at`.
    fn seen(tokens: Vec<Token>, at: SocketAddr) -> Beside {
        let beside = vec![RelayAddress::new(at).unwrap()];
        let config = Config { listen: vec![local()], tokens, beside, ..Config::default() };
        look_beside(&config).unwrap().remove(0)
    }

    /// A relay that runs till it is dropped.
    struct Running(Handle, Option<std::thread::JoinHandle<io::Result<()>>>, SocketAddr);

    impl Running {
        fn new(tokens: Vec<Token>) -> Self {
            let config = Config { listen: vec![local()], tokens, ..Config::default() };
            let daemon = Daemon::new(config).unwrap();
            let (at, handle) = (daemon.addresses()[0], daemon.handle());
            Self(handle, Some(std::thread::spawn(move || daemon.run())), at)
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.end();
            self.0.end();
            self.1.take().unwrap().join().unwrap().unwrap();
        }
    }

    #[test]
    fn one_that_has_all_our_tokens_is_of_use_and_nobody_is_registered_there() {
        let other = Running::new(vec![token("x", 1), token("y", 2)]);
        let fine = seen(vec![token("a", 1), token("b", 2)], other.2);
        assert!(fine.wrong.is_empty() && fine.trip.is_some(), "{fine:?}");
        let wrong = seen(vec![token("a", 1), token("b", 3), token("c", 4)], other.2).wrong;
        assert_eq!(wrong, ["b", "c"].map(|name| Useless::Token(name.to_owned())));
        assert_eq!(seen(Vec::new(), other.2).wrong, [Useless::NoToken]);
        let snapshot = other.0.snapshot(Duration::from_secs(5)).unwrap();
        assert_eq!(snapshot.gauges.registered, 0);
    }

    #[test]
    fn one_that_none_or_not_all_reach_is_told_of() {
        let listen = vec!["0.0.0.0:7118".parse().unwrap(), local()];
        let other = Running::new(vec![token("x", 1)]);
        let beside = vec![RelayAddress::new(other.2).unwrap()];
        let tokens = vec![token("a", 1)];
        let config = Config { listen, tokens: tokens.clone(), beside, ..Config::default() };
        assert_eq!(look_beside(&config).unwrap().remove(0).wrong, [Useless::Loopback]);
        // It is the very one whose settings these are.
        let own = Config { listen: vec![other.2], ..config.clone() };
        assert_eq!(look_beside(&own).unwrap().remove(0).wrong, [Useless::Own]);
        let any = format!("[::]:{}", other.2.port()).parse().unwrap();
        let wrong = look_beside(&Config { listen: vec![any], ..config }).unwrap().remove(0).wrong;
        assert_eq!(wrong, [Useless::Loopback, Useless::Own]);
        let at = other.2;
        drop(other);
        assert!(matches!(&seen(tokens, at).wrong[..], [Useless::Connect(_)]));
    }

    #[test]
    fn what_is_no_relay_is_said_to_be_none_once() {
        let listener = TcpListener::bind(local()).unwrap();
        let at = listener.local_addr().unwrap();
        let talking = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
            let _ = stream.read(&mut [0; 1000]);
        });
        let wrong = seen(vec![token("a", 1), token("b", 2)], at).wrong;
        assert!(matches!(&wrong[..], [Useless::NoRelay(_)]), "{wrong:?}");
        talking.join().unwrap();
    }
}
