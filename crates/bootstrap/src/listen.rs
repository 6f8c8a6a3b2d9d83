//! Listening, by one rule for all that wait for processes from elsewhere.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Connections that the kernel holds until we accept them.
const BACKLOG: i32 = 1024;

/// Every address of this machine, of both families. Who comes by IPv4 then has an IPv6 address that stands for it
/// ([`IpAddr::to_canonical`]).
pub const EVERYWHERE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Listens at an address of this machine, or [everywhere](EVERYWHERE); there over IPv4 alone where the kernel has no IPv6. Port 0 chooses a
/// free one. The port may have been used a moment ago.
///
/// # Errors
/// It is no address of this machine, or the port is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    listen_on(address).or_else(|error| match address.ip() {
        EVERYWHERE => listen_on(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port())),
        _ => Err(error),
    })
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(address.ip() != EVERYWHERE)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn both_families_come_to_one_port_and_a_taken_one_is_told() {
        let listener = listen(SocketAddr::new(EVERYWHERE, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let locals: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        // A machine without IPv6 has one.
        for local in locals.into_iter().filter(|ip| ip.is_ipv4() || at.is_ipv6()) {
            let near = TcpStream::connect((local, at.port())).unwrap();
            let (_, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip().to_canonical(), local);
            drop(near);
        }
        let taken = listen(SocketAddr::new(EVERYWHERE, at.port())).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let port = listen(SocketAddr::new(locals[0], 0)).unwrap().local_addr().unwrap();
        assert_eq!(port.ip(), locals[0]);
    }
}
