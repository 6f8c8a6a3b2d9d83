//! `/metrics` and `/healthz`, from a thread of their own: the loop only hands over what it has counted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::control::Handle;
use crate::metrics;

/// How long a client may take, and the loop to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most of a request that is read.
const MOST: usize = 8 * 1024;

/// Serves until the process ends. Returns where.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) fn serve(address: SocketAddr, handle: Handle) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot serve metrics on {address}: {error}"))
    })?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // One at a time: whoever is slow holds up the next for the time of his patience.
                Ok(stream) => drop(answer(stream, &handle)),
                // Out of descriptors, perhaps.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn answer(mut stream: TcpStream, handle: &Handle) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
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
fn read_request(stream: &mut TcpStream) -> io::Result<String> {
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
