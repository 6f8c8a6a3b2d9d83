//! `/metrics` and `/healthz`: each that asks is answered by a thread that lasts as long; the loop only hands over what it has counted.
//!
//! A few are answered at a time. Where another comes the oldest of them has had his time, so that nobody keeps others out who says nothing.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::control::{Command, Handle};
use crate::daemon::{Daemon, Due};
use crate::metrics::{self, Snapshot};
use crate::poller::Interest;
use crate::sockets::Socket;

/// How long a client may take in all, and the loop to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most of a request that is read.
const MOST: usize = 8 * 1024;

/// After how long it is tried again to take the next when there was no descriptor for him.
const RETRY: Duration = Duration::from_millis(100);

/// So many are answered at a time.
const MOST_SERVED: usize = 8;

/// How long what was counted is good for whoever asks next: counting looks at every circuit.
const KEPT: Duration = Duration::from_secs(1);

/// Where it is asked.
#[derive(Debug)]
pub(crate) struct Http {
    listener: TcpListener,
    /// Who is being answered, the oldest first.
    served: VecDeque<Served>,
    /// Who comes next, where all places are taken: the oldest has been told to leave his.
    next: Option<TcpStream>,
    /// How many there were.
    count: u64,
    /// What was counted last, and when.
    kept: Option<(Instant, Arc<Page>)>,
}

/// One who is being answered. His connection is his thread's.
#[derive(Debug)]
struct Served {
    number: u64,
    stream: Weak<TcpStream>,
}

/// What was counted, for all who ask within [`KEPT`].
#[derive(Debug)]
pub(crate) struct Page {
    seen: Snapshot,
    /// Written down for the first who asks for it; `None`: it cannot be.
    text: OnceLock<Option<String>>,
}

impl Page {
    fn text(&self) -> Option<&str> {
        self.text.get_or_init(|| metrics::encode(&self.seen).ok()).as_deref()
    }
}

/// What somebody is answered: however many are, a page is there once.
enum Body {
    Words(&'static str),
    Page(Arc<Page>),
}

impl Body {
    fn text(&self) -> &str {
        match self {
            Self::Words(words) => words,
            Self::Page(page) => page.text().unwrap_or_default(),
        }
    }
}

impl Http {
    fn accept(&self) -> io::Result<TcpStream> {
        self.listener.accept().map(|(stream, _)| stream)
    }

    fn serve(&mut self, stream: TcpStream, handle: Handle) {
        let (number, stream) = (self.count, Arc::new(stream));
        self.count += 1;
        let served = Served { number, stream: Arc::downgrade(&stream) };
        if start_answering(stream, Answering(handle, number)) {
            self.served.push_back(served);
        }
    }

    /// What the oldest still waits for ends at once.
    fn end_oldest(&self) {
        if let Some(stream) = self.served.front().and_then(|oldest| oldest.stream.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
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
        let served = VecDeque::with_capacity(MOST_SERVED);
        self.http = Some(Http { listener, served, next: None, count: 0, kept: None });
        Ok(bound)
    }

    /// The one with this number has been answered, or was not to be.
    pub(crate) fn answered(&mut self, number: u64) {
        if let Some(http) = &mut self.http {
            http.served.retain(|served| served.number != number);
        }
        self.answer_next();
    }

    /// Has those answered who have come, as far as there is place.
    pub(crate) fn answer_next(&mut self) {
        let Some(http) = &mut self.http else { return };
        loop {
            let stream = match http.next.take().map_or_else(|| http.accept(), Ok) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Out of descriptors, perhaps.
                Err(_) => return self.timer(Instant::now() + RETRY, Due::Http),
            };
            if http.served.len() >= MOST_SERVED {
                http.next = Some(stream);
                return http.end_oldest();
            }
            http.serve(stream, self.handle.clone());
        }
    }

    /// What has been counted, unless that is known from a moment ago and nothing was said to the relay since.
    pub(crate) fn page(&mut self, now: Instant) -> Arc<Page> {
        let kept = self.http.as_ref().and_then(|http| http.kept.as_ref());
        let is_fresh = |at: Instant, page: &Page| {
            now < at + KEPT && page.seen.is_draining == self.is_draining()
        };
        if let Some((_, page)) = kept.filter(|(at, page)| is_fresh(*at, page)) {
            return page.clone();
        }
        let page = Arc::new(Page { seen: self.snapshot(), text: OnceLock::new() });
        if let Some(http) = &mut self.http {
            http.kept = Some((now, page.clone()));
        }
        page
    }

    /// What was counted under other settings is of no use.
    pub(crate) fn forget_page(&mut self) {
        if let Some(http) = &mut self.http {
            http.kept = None;
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
struct Answering(Handle, u64);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.say(Command::Answered(self.1));
    }
}

/// Whether it has begun: else he who asked sees his connection closed.
fn start_answering(stream: Arc<TcpStream>, answering: Answering) -> bool {
    let started = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        let answering = answering;
        // Who asked may have gone.
        let _ = answer(stream, &answering.0);
    });
    started.is_ok()
}

/// A client, and how long it may still take: there are few places.
struct Client {
    stream: Arc<TcpStream>,
    left: Duration,
}

impl Client {
    /// Lets it do something for as long as it has left.
    fn wait<T>(
        &mut self,
        what: impl FnOnce(&TcpStream, Duration) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let began = Instant::now();
        let result = what(&self.stream, self.left);
        self.left = self.left.saturating_sub(began.elapsed());
        result
    }
}

impl Read for Client {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.wait(|mut stream, left| {
            stream.set_read_timeout(Some(left))?;
            stream.read(space)
        })
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|mut stream, left| {
            stream.set_write_timeout(Some(left))?;
            stream.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(stream: Arc<TcpStream>, handle: &Handle) -> io::Result<()> {
    let mut stream = Client { stream, left: PATIENCE };
    let request = read_request(&mut stream)?;
    let (status, kind, body) = respond(&request, handle);
    let body = body.text();
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

fn respond(request: &str, handle: &Handle) -> (&'static str, &'static str, Body) {
    const TEXT: &str = "text/plain; charset=utf-8";
    const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let words = |status, words| (status, TEXT, Body::Words(words));
    let mut asked = request.split_ascii_whitespace();
    let (method, path) = (asked.next().unwrap_or_default(), asked.next().unwrap_or_default());
    if !matches!(method, "GET" | "HEAD") {
        return words("405 Method Not Allowed", "only GET is answered\n");
    }
    let path = path.split('?').next().unwrap_or_default();
    if !matches!(path, "/metrics" | "/healthz") {
        return words("404 Not Found", "here are /metrics and /healthz\n");
    }
    let Some(page) = handle.page(PATIENCE) else {
        return words("503 Service Unavailable", "the relay does not answer\n");
    };
    match path {
        "/metrics" if page.text().is_some() => ("200 OK", METRICS, Body::Page(page)),
        "/metrics" => words("500 Internal Server Error", "cannot be written down\n"),
        _ if page.seen.is_draining => words("503 Service Unavailable", "draining\n"),
        _ => words("200 OK", "ok\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

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
        assert!(answer(Arc::new(stream), &Handle::new().unwrap()).is_err());
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
        sending.join().unwrap();
    }

    #[test]
    fn who_reads_a_little_now_and_then_is_left_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut client = Client { stream: Arc::new(stream), left: PATIENCE / 4 };
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

    fn daemon() -> Daemon {
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        Daemon::new(Config { listen, ..Config::default() }).unwrap()
    }

    #[test]
    fn who_asks_is_answered_beside_those_who_say_nothing() {
        let mut daemon = daemon();
        let address = daemon.serve_http("127.0.0.1:0".parse().unwrap()).unwrap();
        // All have come before anybody is looked after.
        let mut silent: Vec<_> =
            (0..8 * MOST_SERVED).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut asking = TcpStream::connect(address).unwrap();
        // If each had his time it would be 8 times that.
        asking.set_read_timeout(Some(5 * PATIENCE)).unwrap();
        asking.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let handle = daemon.handle();
        let running = std::thread::spawn(move || daemon.run());
        let mut said = String::new();
        asking.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
        // The youngest has still time, and the oldest have made room.
        let mut youngest = silent.pop().unwrap();
        youngest.set_nonblocking(true).unwrap();
        let kept = youngest.read(&mut [0; 100]).map_err(|error| error.kind());
        assert_eq!(kept, Err(io::ErrorKind::WouldBlock));
        for gone in &mut silent[..7 * MOST_SERVED] {
            gone.set_nonblocking(true).unwrap();
            let read = gone.read(&mut [0; 100]);
            assert!(!matches!(&read, Err(e) if e.kind() == io::ErrorKind::WouldBlock), "{read:?}");
        }
        handle.end();
        handle.end();
        running.join().unwrap().unwrap();
    }

    #[test]
    fn what_was_counted_is_kept_for_a_moment_unless_the_relay_was_told_something() {
        let mut daemon = daemon();
        daemon.serve_http("127.0.0.1:0".parse().unwrap()).unwrap();
        let now = Instant::now();
        let first = daemon.page(now);
        let is_first = |page: Arc<Page>| Arc::ptr_eq(&page, &first);
        assert!(is_first(daemon.page(now + KEPT / 2)));
        assert!(!is_first(daemon.page(now + KEPT)));
        let before = daemon.page(now + KEPT);
        daemon.handle().reload(daemon.config.clone());
        daemon.obey();
        assert!(!Arc::ptr_eq(&daemon.page(now + KEPT), &before));
        assert!(!daemon.page(now + KEPT).seen.is_draining);
        daemon.end();
        assert!(daemon.page(now + KEPT).seen.is_draining);
    }
}
