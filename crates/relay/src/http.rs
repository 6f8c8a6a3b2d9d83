//! `/metrics` and `/healthz`: each that asks is answered by a thread that lasts as long; the loop only hands over what it has counted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::control::{Command, Handle};
use crate::daemon::{Daemon, Due};
use crate::metrics;
use crate::poller::Interest;
use crate::sockets::Socket;

/// How long a client may take in all, and the loop to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most of a request that is read.
const MOST: usize = 8 * 1024;

/// After how long it is tried again to take the next when there was no descriptor for him.
const RETRY: Duration = Duration::from_millis(100);

/// Where it is asked.
#[derive(Debug)]
pub(crate) struct Http {
    listener: TcpListener,
    /// One is being answered. Whoever is slow holds up the next for [`PATIENCE`].
    is_busy: bool,
}

impl Daemon {
    /// Serves as long as the relay does. Returns where.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(crate) fn serve_http(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, fd) = listen(address).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot serve metrics on {address}: {error}"))
        })?;
        let bound = listener.local_addr()?;
        self.sockets.add(fd, Interest::Changes, Socket::Http)?;
        self.http = Some(Http { listener, is_busy: false });
        Ok(bound)
    }

    /// The one who was being answered has been.
    pub(crate) fn answered(&mut self) {
        if let Some(http) = &mut self.http {
            http.is_busy = false;
        }
        self.answer_next();
    }

    /// Has the next one answered, if there is one and none is before him.
    pub(crate) fn answer_next(&mut self) {
        let Some(http) = &mut self.http else { return };
        while !http.is_busy {
            match http.listener.accept() {
                Ok((stream, _)) => http.is_busy = start_answering(stream, self.handle.clone()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Out of descriptors, perhaps.
                Err(_) => return self.timer(Instant::now() + RETRY, Due::Http),
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, OwnedFd)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let fd = listener.as_fd().try_clone_to_owned()?;
    Ok((listener, fd))
}

/// Says so when it ends, however it does.
struct Answering(Handle);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.say(Command::Answered);
    }
}

/// Whether it has begun: else he who asked sees his connection closed.
fn start_answering(stream: TcpStream, handle: Handle) -> bool {
    let started = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        let answering = Answering(handle);
        // Who asked may have gone.
        let _ = answer(stream, &answering.0);
    });
    started.is_ok()
}

/// A client, and how long it may still take: whoever comes next waits for it.
struct Client {
    stream: TcpStream,
    left: Duration,
}

impl Client {
    /// Lets it do something for as long as it has left.
    fn wait<T>(
        &mut self,
        what: impl FnOnce(&mut TcpStream, Duration) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let began = Instant::now();
        let result = what(&mut self.stream, self.left);
        self.left = self.left.saturating_sub(began.elapsed());
        result
    }
}

impl Read for Client {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.wait(|stream, left| {
            stream.set_read_timeout(Some(left))?;
            stream.read(space)
        })
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|stream, left| {
            stream.set_write_timeout(Some(left))?;
            stream.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(stream: TcpStream, handle: &Handle) -> io::Result<()> {
    let mut stream = Client { stream, left: PATIENCE };
    let request = read_request(&mut stream)?;
    let (status, kind, body) = respond(&request, handle);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if !request.starts_with("HEAD ") {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// The request's head, as far as it is of interest.
fn read_request(stream: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut space = [0; 1024];
    while bytes.len() < MOST && !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        let count = stream.read(&mut space)?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(space.get(..count).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn respond(request: &str, handle: &Handle) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    let mut words = request.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !matches!(method, "GET" | "HEAD") {
        return ("405 Method Not Allowed", TEXT, "only GET is answered\n".to_owned());
    }
    let path = path.split('?').next().unwrap_or_default();
    if !matches!(path, "/metrics" | "/healthz") {
        return ("404 Not Found", TEXT, "here are /metrics and /healthz\n".to_owned());
    }
    let Some(seen) = handle.snapshot(PATIENCE) else {
        return ("503 Service Unavailable", TEXT, "the relay does not answer\n".to_owned());
    };
    match path {
        "/metrics" => match metrics::encode(&seen) {
            Ok(body) => {
                ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", body)
            }
            Err(_) => ("500 Internal Server Error", TEXT, "cannot be written down\n".to_owned()),
        },
        _ if seen.is_draining => ("503 Service Unavailable", TEXT, "draining\n".to_owned()),
        _ => ("200 OK", TEXT, "ok\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_a_byte_now_and_then_is_left_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let began = Instant::now();
        let sending = std::thread::spawn(move || {
            // Until it is closed; not for ever, if it is not.
            while began.elapsed() < 4 * PATIENCE && slow.write_all(b"G").is_ok() {
                std::thread::sleep(PATIENCE / 20);
            }
        });
        assert!(answer(stream, &Handle::new().unwrap()).is_err());
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
        sending.join().unwrap();
    }

    #[test]
    fn who_reads_a_little_now_and_then_is_left_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut client = Client { stream, left: PATIENCE / 4 };
        let began = Instant::now();
        let reading = std::thread::spawn(move || {
            let mut space = vec![0; 64 << 10];
            while slow.read(&mut space).is_ok_and(|count| count > 0) {
                std::thread::sleep(PATIENCE / 200);
            }
        });
        // So much would take 5 s.
        assert!(client.write_all(&vec![0; 32 << 20]).is_err());
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        drop(client);
        reading.join().unwrap();
    }
}
